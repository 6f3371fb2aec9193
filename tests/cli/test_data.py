"""`highrank data`: the list of corpora, verification, preparation and the cache."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest

from helpers import fails, highrank, settings, write_toy_dialogs
from highrank.data.catalog import CORPORA, ONE_BILLION_WORD
from highrank.data.corpus import load_corpus
from highrank.data.folders import cache_folder


def test_list_gives_counts_and_the_folder_of_each_copy(tmp_path, corpora):
    rows = {row["name"]: row for row in json.loads(highrank("data", "list", "--json", cwd=tmp_path).stdout)}
    assert rows["penn"]["tokens"]["train"] == 929_589
    assert rows["penn"]["folder"] is None
    rows = json.loads(highrank("data", "list", "--json", "--data-dir", corpora, cwd=tmp_path).stdout)
    assert rows[0]["folder"] == str(corpora / "penn")
    assert str(corpora / "penn") in highrank("data", "list", "--data-dir", corpora, cwd=tmp_path).stdout


@pytest.mark.parametrize("name", ["penn", "wikitext-2"])
def test_verify_accepts_the_usual_copies(name, tmp_path, corpora):
    assert highrank("data", "verify", name, "--data-dir", corpora, cwd=tmp_path).stdout.count("checksum correct") == 3


def test_verify_says_how_much_of_text8_there_is(tmp_path):
    (tmp_path / "text8").write_text("a word " * 100)
    done = highrank("data", "verify", "text8", "--data-dir", tmp_path, cwd=tmp_path)
    assert "prefix of 700 characters" in done.stdout
    assert "checksum correct" not in done.stdout
    rows = json.loads(highrank("data", "list", "--json", "--data-dir", tmp_path, cwd=tmp_path).stdout)
    assert [row["folder"] for row in rows if row["name"] == "text8"] == [str(tmp_path)]


def test_verify_reports_changed_bytes(tmp_path, corpora):
    copy = tmp_path / "penn"
    copy.mkdir()
    for split in ("train", "valid", "test"):
        text = (corpora / "penn" / f"{split}.txt").read_text()
        (copy / f"{split}.txt").write_text(text.replace("\n", " \n") if split == "valid" else text)
    assert highrank("data", "verify", "penn", "--data-dir", copy, cwd=tmp_path).stdout.count("checksum correct") == 2


def test_verify_names_the_file_with_wrong_counts(place):
    assert "train.txt" in fails("data", "verify", "penn", "--data-dir", "toy", cwd=place)


def test_an_unknown_corpus_is_an_error_that_suggests_the_nearest(tmp_path):
    assert '"penn"' in fails("data", "verify", "pen", cwd=tmp_path)


def test_pydoc_needs_no_copy(tmp_path):
    assert "vocabulary" in highrank("data", "verify", "pydoc", cwd=tmp_path).stdout


def test_cache_counts_and_clears_only_its_own_files(tmp_path):
    cache = cache_folder()
    own = [cache / "dynamic" / "cd.safetensors", cache / "readings" / "ef.json"]
    own.append(cache / "dynamic" / ".cd.safetensors.12.tmp")  # of a process that was killed
    corpus = cache / "data" / "toy" / "train.txt"
    for file in (*own, corpus):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("12345")
    rows = json.loads(highrank("data", "cache", "--json", cwd=tmp_path).stdout)
    usage = {Path(row["folder"]).name: (row["files"], row["bytes"]) for row in rows}
    assert usage == {"dynamic": (2, 10), "readings": (1, 5)}
    highrank("data", "cache", "--clear", cwd=tmp_path)
    assert [path for path in cache.rglob("*") if path.is_file()] == [corpus]


# --- your own text --------------------------------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("".join(f"The cat's dog saw line {i % 40}.\n" for i in range(400)))
    return path


def test_make_prints_and_stores_its_counts(book, tmp_path):
    done = highrank("data", "make", book, "--out", "mine", "--lower", "--min-count", 1, "--json", cwd=tmp_path)
    description = json.loads(done.stdout)
    assert description == json.loads((tmp_path / "mine" / "corpus.json").read_text())
    assert (description["lower"], description["level"], description["unknown"]["train"]) == (True, "word", 0)


def test_verify_counts_the_tokens_of_a_made_folder(book, tmp_path):
    made = highrank("data", "make", book, "--out", "mine", "--level", "bpe", "--max-vocab", 300, cwd=tmp_path)
    table = made.stdout.splitlines()[1:5]
    assert highrank("data", "verify", "mine", cwd=tmp_path).stdout.splitlines()[1:5] == table


def test_verify_finds_a_made_folder_whose_text_has_changed(book, tmp_path):
    highrank("data", "make", book, "--out", "mine", cwd=tmp_path)
    with open(tmp_path / "mine" / "test.txt", "a") as file:
        file.write("another line\n")
    assert "mine" in fails("data", "verify", "mine", cwd=tmp_path)


def test_verify_says_how_many_words_of_a_raw_folder_are_not_in_train(place):
    (place / "toy" / "test.txt").write_text("the zebra sees the okapi\n")
    assert highrank("data", "verify", "toy", cwd=place).stderr.startswith("2 words")


def test_verify_reads_a_folder_of_dialogs(tmp_path):
    write_toy_dialogs(tmp_path / "talks")
    assert "utterances" in highrank("data", "verify", "talks", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("options", "fix"), [("--max-vocab 5", "--max-vocab"), ("--min-count 500", "--min-count"), ("--max-vocab 40", "")]
)
def test_make_says_so_if_the_vocabulary_is_too_small_for_the_text(book, tmp_path, options, fix):
    done = highrank("data", "make", book, "--out", "mine", *options.split(), cwd=tmp_path)
    assert [word.strip(".") for word in done.stderr.split() if word.startswith("--")] == ([fix] if fix else [])


@pytest.mark.parametrize(
    "options",
    ["--valid book.txt", "--tokenizer book.txt", "--tokenizer mine --lower", "--level bpe --max-vocab 256"],
)
def test_make_names_a_wrong_option(book, tmp_path, options):
    fails("data", "make", book, "--out", "mine", *options.split(), cwd=tmp_path)
    assert not (tmp_path / "mine").exists()


# --- text larger than memory ----------------------------------------------------------------------------------------


def test_a_prepared_corpus_serves_every_command(place):
    """From text shards to a trained, resumed, evaluated and analysed model."""
    assert (
        "vocabulary 12" in highrank("data", "prepare", "toy", "--out", "prepared", "--max-vocab", 12, cwd=place).stdout
    )
    assert "vocabulary 12" in highrank("data", "verify", "prepared", cwd=place).stdout
    arguments = ("train", "ptb-mos", *settings("data.corpus=prepared"), "--out", "run")
    highrank(*arguments, "--max-epochs", 1, cwd=place)
    highrank(*arguments, "--resume", "--max-epochs", 2, cwd=place)
    for split in ("valid", "train"):
        row = json.loads(highrank("evaluate", "run", "--split", split, "--json", cwd=place).stdout)
        text = (place / "toy" / f"{split}.txt").read_text()
        assert row["tokens"] == len(text.split()) + text.count("\n") - 1
    highrank("evaluate", "run", "--cache", cwd=place)
    highrank("evaluate", "run", "--dynamic", cwd=place)
    highrank("analyze", "run", "--tokens", 50, cwd=place)
    highrank("generate", "run", "--length", 5, cwd=place)


@pytest.mark.parametrize(("max_vocab", "noted"), [(100, True), (12, False)])
def test_prepare_says_so_if_only_the_other_splits_have_unknown_words(place, max_vocab, noted):
    (place / "toy" / "test.txt").write_text("the zebra sees the okapi\n")
    done = highrank("data", "prepare", "toy", "--out", "prepared", "--max-vocab", max_vocab, cwd=place)
    assert ("--max-vocab" in done.stderr) == noted


def test_compare_reads_a_prepared_corpus(place):
    """Its perplexity is that of `evaluate`, and words are grouped by how often they occur in the training text."""
    highrank("data", "prepare", "toy", "--out", "prepared", cwd=place)
    for head in ("mos", "moc"):
        options = settings(f"data.corpus=prepared model.head={head}")
        highrank("train", "ptb-mos", *options, "--out", head, "--max-epochs", 1, cwd=place)
    compared = json.loads(highrank("compare", "mos", "moc", "--json", cwd=place).stdout)
    evaluated = json.loads(highrank("evaluate", "mos", "--json", cwd=place).stdout)
    assert compared["a"]["perplexity"] == pytest.approx(evaluated["perplexity"], rel=1e-5)
    assert compared["tokens"] == evaluated["tokens"]
    counts = Counter((place / "toy" / "train.txt").read_text().split())
    test = (place / "toy" / "test.txt").read_text().split()
    rare = sum(10 <= counts[word] < 100 for word in test[1:])
    assert {group["name"]: group["steps"] for group in compared["by_frequency"]}["10 to 99"] == rare


@pytest.fixture
def billion(tmp_path):
    """A folder with the files of the One Billion Word benchmark, of one line each."""
    names = [f"news.en-{i:05}-of-00100" for i in range(1, 100)]
    names += [f"news.en.heldout-{i:05}-of-00050" for i in range(50)]
    for name in names:
        (tmp_path / "shards" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "shards" / name).write_text(f"The {name}\n")
    return tmp_path


def test_the_shards_of_one_billion_word_are_lower_cased(billion):
    highrank("data", "prepare", "shards", "--out", "prepared", cwd=billion)
    words = json.loads((billion / "prepared" / "vocabulary.json").read_text())
    assert words[:4] == ["<unk>", "<eos>", "the", "news.en-00001-of-00100"]
    assert len(words) == 3 + 99


def test_patterns_choose_some_shards_of_one_billion_word(billion):
    patterns = ("--train", "news.en-0000[12]*", "--valid", "*heldout-00000*", "--test", "*heldout-00001*")
    highrank("data", "prepare", "shards", "--out", "prepared", *patterns, cwd=billion)
    words = json.loads((billion / "prepared" / "vocabulary.json").read_text())
    assert words == ["<unk>", "<eos>", "The", "news.en-00001-of-00100", "news.en-00002-of-00100"]


@pytest.mark.parametrize(
    ("patterns", "vocabulary", "extent"),
    [
        ((), 102, "full"),
        (("--train", "news.en-0000[12]*", "--valid", "*t-00000-*", "--test", "*t-00020-*"), 5, "2 of 99"),
    ],
)
def test_some_shards_of_one_billion_word_do_not_count_as_all(billion, monkeypatch, patterns, vocabulary, extent):
    monkeypatch.setitem(CORPORA, "one-billion-word", dataclasses.replace(ONE_BILLION_WORD, vocabulary=vocabulary))
    highrank("data", "prepare", "shards", "--out", "one-billion-word", *patterns, cwd=billion)
    assert load_corpus("one-billion-word", billion).extent.startswith(extent)


def test_a_damaged_prepared_corpus_is_found_by_its_checksum(place):
    highrank("data", "prepare", "toy", "--out", "prepared", cwd=place)
    damage(place / "prepared" / "train.bin", 1)
    assert "train.bin" in fails("data", "verify", "prepared", cwd=place)


def damage(file, bits):
    """Flip bits of one byte."""
    data = bytearray(file.read_bytes())
    data[42] ^= bits
    file.write_bytes(data)


def test_ids_outside_the_vocabulary_end_a_command_with_the_name_of_the_file(place):
    highrank("data", "prepare", "toy", "--out", "prepared", cwd=place)
    arguments = ("train", "ptb-mos", *settings("data.corpus=prepared"), "--max-epochs", 1, "--out")
    highrank(*arguments, "run", cwd=place)
    damage(place / "prepared" / "test.bin", 255)
    assert "test.bin" in fails("evaluate", "run", cwd=place)
    damage(place / "prepared" / "train.bin", 255)
    assert "train.bin" in fails(*arguments, "other", cwd=place)


def test_verify_checks_the_checksums_of_one_billion_word(billion, monkeypatch):
    monkeypatch.setitem(CORPORA, "one-billion-word", dataclasses.replace(ONE_BILLION_WORD, vocabulary=102))
    highrank("data", "prepare", "shards", "--out", "corpora/one-billion-word", cwd=billion)
    verify = ("data", "verify", "one-billion-word", "--data-dir", "corpora")
    assert "checksums" in highrank(*verify, cwd=billion).stdout
    damage(billion / "corpora" / "one-billion-word" / "train.bin", 1)
    assert "train.bin" in fails(*verify, cwd=billion)

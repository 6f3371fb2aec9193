"""A user's own text through the commands: make, train, evaluate, generate, compare, export and warm start."""

import json
import math
import re
import shlex

import pytest

import highrank as package
from helpers import fails, highrank, settings
from highrank.data.own_text import make_corpus
from highrank.recipes import RECIPES
from highrank.runs.folder import Run
from highrank.runs.record import read_record

SENTENCES = ["The cat's dog saw it.", "A bird, a café and the old dog!", "It saw the bird."]


@pytest.fixture
def text(tmp_path):
    """A folder with book.txt and two corpora made of it, words and BPE."""
    book = tmp_path / "book.txt"
    book.write_text("".join(f"{SENTENCES[i * i % 3]}\n" for i in range(600)))
    make_corpus([book], tmp_path / "words", min_count=1)
    make_corpus([book], tmp_path / "bpe", level="bpe", max_vocab=290)
    return tmp_path


def train(cwd, corpus, *arguments, recipe="small-mos", out="run", check=0):
    small = settings(f"data.corpus={corpus}")
    return highrank("train", recipe, *small, "--max-epochs", 1, "--out", out, *arguments, cwd=cwd, check=check)


def test_the_suggested_command_trains_on_a_folder_with_a_space(text):
    made = highrank("data", "make", "book.txt", "--out", "my text", cwd=text)
    command = made.stdout.splitlines()[-1]
    highrank(*shlex.split(command)[1:], "--max-epochs", 0, cwd=text)


def test_bpe_from_a_file_to_a_comparison(text):
    done = train(text, "bpe")
    assert "bits per byte" in done.stdout
    assert Run(text / "run").recipe().data.level == "bpe"
    result = json.loads(highrank("evaluate", "run", "--json", cwd=text).stdout)
    corpus = Run(text / "run").folder.parent / "bpe" / "test.txt"
    bits = result["nll"] * (result["tokens"] + 1) / math.log(2) / corpus.stat().st_size
    assert result["bits_per_byte"] == pytest.approx(bits)
    prompt = "The café's  zebra"
    assert highrank("generate", "run", "--prompt", prompt, "--length", 5, cwd=text).stdout.startswith(prompt)
    train(text, "bpe", recipe="small-moc", out="other")
    highrank("compare", "run", "other", "--contains", "dog", "--out", "comparison", cwd=text)


def test_the_level_word_of_a_folder_with_a_tokenizer_is_the_same_on_resume(text):
    train(text, "bpe", "--set", "data.level=word")
    train(text, "bpe", "--set", "data.level=word", "--resume")
    assert "data.level" in train(text, "bpe", "--set", "data.level=char", "--resume", check=2).stderr


def test_a_prompt_is_tokenised_like_the_text(text):
    train(text, "words")
    done = highrank("generate", "run", "--prompt", "the cat's zebra", "--length", 1, cwd=text)
    assert done.stdout.startswith("the cat 's <unk>")
    assert "zebra" in done.stderr.split()


def test_an_export_keeps_the_tokenizer(text):
    train(text, "bpe")
    highrank("export", "run", "--out", "export", cwd=text)
    highrank("import", "export", "--out", "back", cwd=text)
    assert (text / "back" / "tokenizer.json").read_text() == (text / "run" / "tokenizer.json").read_text()


def test_training_starts_with_corpus_sizes_and_device(text):
    line = train(text, "words").stdout.splitlines()[0]
    corpus = json.loads((text / "words" / "corpus.json").read_text())
    parameters = package.load(text / "run").model.n_parameters()
    numbers = [corpus["tokens"]["train"], corpus["vocabulary"], parameters]
    assert [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\b(?= [tp]|, )", line)] == numbers
    assert "words" in line
    assert "cpu" in line


def test_training_on_plain_text_says_how_many_words_train_never_has(place):
    (place / "toy" / "test.txt").write_text("the zebra sees the okapi\n")
    assert "2 words" in train(place, "toy").stderr


@pytest.mark.parametrize("size", ["small", "medium"])
def test_recipes_for_own_text_differ_in_their_heads(size):
    group = [RECIPES[f"{size}-{head}"] for head in ("softmax", "moc", "mos")]
    assert [recipe.model.head for recipe in group] == ["softmax", "moc", "mos"]
    assert {recipe.data.corpus for recipe in group} == {""}


def test_a_recipe_for_own_text_needs_its_folder(text):
    assert "--set data.corpus=FOLDER" in fails("train", "small-mos", cwd=text)


# --- memory ---------------------------------------------------------------------------------------------------------


def test_a_text_larger_than_memory_is_refused_before_it_is_read(text, monkeypatch):
    monkeypatch.setattr("highrank.memory.free_bytes", lambda device: 50_000)
    assert "highrank data prepare" in train(text, "words", check=2).stderr
    assert not (text / "run").exists()


def test_a_vocabulary_too_large_for_the_memory_is_refused_before_training(text, monkeypatch):
    monkeypatch.setattr("highrank.memory.free_bytes", lambda device: 10**9)
    monkeypatch.setattr("highrank.runs.training.count_parameters", lambda recipe, vocab_size: 10**9)
    assert "--max-vocab" in train(text, "words", check=2).stderr
    assert not (text / "run").exists()


def test_a_vocabulary_too_large_for_a_cpu_is_announced_before_training(text, monkeypatch):
    assert "--max-vocab" not in train(text, "words").stderr
    monkeypatch.setattr("highrank.cli.training_display.LARGE_VOCABULARY", 10)
    assert "--max-vocab" in train(text, "words", "--max-epochs", 0, out="other").stderr


# --- warm start -----------------------------------------------------------------------------------------------------


def test_a_warm_start_continues_with_the_weights_of_another_run(text):
    train(text, "words")
    first = json.loads((text / "run" / "summary.json").read_text())["valid_ppl"]
    train(text, "words", "--init-from", "run", out="warm")
    assert json.loads((text / "warm" / "summary.json").read_text())["valid_ppl"] < first
    assert Run(text / "warm").info().init_from == str(text / "run")
    assert read_record(Run(text / "warm").summary_file).init_from == "run"


def test_a_warm_start_from_another_model_is_an_error(text):
    train(text, "words")
    done = train(text, "words", "--init-from", "run", "--set", "model.n_components=2", out="warm", check=2)
    assert "head." in done.stderr
    assert not (text / "warm").exists()


@pytest.mark.parametrize("options", [["--init-from", "nowhere"], ["--init-from", "run", "--resume"]])
def test_a_wrong_warm_start_is_an_error(text, options):
    train(text, "words", *options, check=2)

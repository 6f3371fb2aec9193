"""Preparing text: shards and splits, vocabulary, the same files however it is done, and bad input."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from highrank.data import prepare as module
from highrank.data.blocks import ShardBlock
from highrank.data.corpus import load_corpus, read_corpus
from highrank.data.prepare import prepare
from highrank.data.prepared import read_manifest
from highrank.data.shards import billion_word_shards, find_shards, is_billion_word
from highrank.errors import UserError

TEXT = {"train-0.txt": "b a\nc b\n", "train-1.txt": "b c c\n", "valid.txt": "a d\n", "test.txt": "e\n"}


def write(folder, files=TEXT):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def prepared(tmp_path, files=TEXT, out="out", **options):
    """Prepare a small text in small blocks, and return the folder."""
    source = write(tmp_path / "source", files)
    prepare(find_shards(source), tmp_path / out, **{"max_vocab": 100, "block_bytes": 16, **options})
    return tmp_path / out


def text(corpus, split):
    return " ".join(corpus.words[i] for i in corpus.ids(split))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- shards ---------------------------------------------------------------------------------------------------------


def test_patterns_match_paths_within_the_folder(tmp_path):
    names = ["train.txt", "train/b/1.txt", "train-2.txt", "valid/x", "test.txt", "README.md", "notes/train.txt"]
    shards = find_shards(write(tmp_path, dict.fromkeys(names, "a\n")))
    found = {split: [str(path.relative_to(tmp_path)) for path in paths] for split, paths in shards.items()}
    assert found == {
        "train": ["train-2.txt", "train.txt", "train/b/1.txt"],
        "valid": ["valid/x"],
        "test": ["test.txt"],
    }


def billion_names():
    heldout = [f"heldout-monolingual/news.en.heldout-{i:05}-of-00050" for i in range(50)]
    return [f"training-monolingual/news.en-{i:05}-of-00100" for i in range(1, 100)] + heldout


def test_the_billion_word_benchmark_has_its_own_splits(tmp_path):
    write(tmp_path, dict.fromkeys(billion_names(), "a\n"))
    assert is_billion_word(tmp_path)
    shards = billion_word_shards(tmp_path)
    assert len(shards["train"]) == 99
    assert [path.name[-14:-9] for path in shards["valid"]] == ["00000", "00010"]
    assert [path.name[-14:-9] for path in shards["test"]] == ["00020", "00030", "00040"]


def test_missing_billion_word_shards_are_named(tmp_path):
    names = [name for name in billion_names() if "00017-of-00100" not in name and "00020-of-00050" not in name]
    write(tmp_path, dict.fromkeys(names, "a\n"))
    with pytest.raises(UserError, match=r"news\.en-00017-of-00100, heldout-00020-of-00050"):
        billion_word_shards(tmp_path)


@pytest.mark.parametrize("first", [0, 1])
def test_a_shard_missing_from_a_numbered_series_is_named(tmp_path, first):
    names = [f"train-{i + first:03}-of-004.txt" for i in range(4)]
    files = dict.fromkeys([*names, "valid.txt", "test.txt"], "a\n")
    assert len(find_shards(write(tmp_path, files))["train"]) == 4
    (tmp_path / names[2]).unlink()
    with pytest.raises(UserError, match=names[2]):
        find_shards(tmp_path)
    some = {"train": f"*{names[0][5:9]}-of*", "valid": "valid*", "test": "test*"}
    assert [path.name for path in find_shards(tmp_path, some)["train"]] == names[:1]  # the others were not asked for


def test_a_split_without_files_is_an_error(tmp_path):
    with pytest.raises(UserError, match="test"):
        find_shards(write(tmp_path, {"train.txt": "a\n", "valid.txt": "a\n"}))


def test_a_file_in_two_splits_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UserError, match=r"valid\.txt"):
        find_shards(write(tmp_path), {"train": "*.txt", "valid": "valid*", "test": "test*"})


# --- the result -----------------------------------------------------------------------------------------------------


def test_words_are_sorted_by_their_count_in_training_and_then_by_name(tmp_path):
    corpus = load_corpus(str(prepared(tmp_path, {**TEXT, "train-0.txt": "c a\nb b\n"})))
    assert corpus.words == ["<unk>", "<eos>", "b", "c", "a"]  # 3, 3, 1
    assert text(corpus, "train") == "c a <eos> b b <eos> b c c <eos>"
    assert text(corpus, "valid") == "a <unk> <eos>"


def test_the_vocabulary_is_cut(tmp_path):
    folder = prepared(tmp_path, max_vocab=3)
    assert text(load_corpus(str(folder)), "train") == "b <unk> <eos> <unk> b <eos> b <unk> <unk> <eos>"
    assert read_manifest(folder).unknown == {"train": 4, "valid": 2, "test": 1}


def test_tokens_equal_those_of_a_corpus_in_memory(tmp_path):
    """Spaces of all kinds, empty lines, line ends of Windows, a byte-order mark, no line end at the end."""
    lines = ["\ufeffa  b\r", " c\td ", "", "\u00e9\u3000f\u00a0g", "a\u2028b\x0cc", "x" * 40, "Z"] * 3
    files = {f"{split}.txt": "\n".join(lines) for split in ("train", "valid", "test")}
    expected = read_corpus(write(tmp_path / "source", files))
    corpus = load_corpus(str(prepared(tmp_path, files, block_bytes=7)))
    assert text(corpus, "train") == text(expected, "train")


def test_lower_case(tmp_path):
    files = {**TEXT, "valid.txt": "A \u00c4\n"}
    corpus = load_corpus(str(prepared(tmp_path, {**files, "train-2.txt": "\u00c4 \u00e4\n"}, lower=True)))
    assert text(corpus, "valid") == "a \u00e4 <eos>"


def test_files_do_not_depend_on_workers_or_blocks(tmp_path):
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{i}" for i in rng.zipf(1.3, size=rng.integers(1, 9)) % 500) for _ in range(400)]
    files = {**TEXT, "train-0.txt": "\n".join(lines)}
    first = contents(prepared(tmp_path, files, workers=1, block_bytes=700))
    assert first == contents(prepared(tmp_path, files, "three", workers=3, block_bytes=700))
    assert first == contents(prepared(tmp_path, files, "whole", block_bytes=10**6))


# --- interruptions --------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, time
from pathlib import Path
from highrank.data.blocks import ShardBlock
from highrank.data.prepare import prepare
from highrank.data.shards import find_shards
split = ShardBlock.split
ShardBlock.split = lambda block, lower: (split(block, lower), time.sleep(0.1))
prepare(find_shards(Path(sys.argv[1])), Path(sys.argv[2]), max_vocab=100, block_bytes=16, workers=1)
"""


def test_a_killed_preparation_continues_with_the_missing_blocks(tmp_path, monkeypatch):
    files = {**TEXT, "train-0.txt": "a b c d e f\n" * 40}  # 30 blocks
    expected = contents(prepared(tmp_path, files, "expected", block_bytes=10**6))
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, tmp_path / "source", out])
    while len(list(out.glob("parts/*.ids"))) < 3 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = len(list(out.glob("parts/*.ids")))
    assert 3 <= finished < 30

    done = []
    split = ShardBlock.split
    monkeypatch.setattr(ShardBlock, "split", lambda block, lower: (done.append(block), split(block, lower)))
    prepare(find_shards(tmp_path / "source"), out, max_vocab=100, block_bytes=16)
    assert contents(out) == expected
    assert len(done) == 30 + 3 - finished


@pytest.fixture
def unfinished(tmp_path, monkeypatch):
    """The folder of a preparation that stopped once all blocks were split."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "_most_frequent", lambda *arguments: [][0])
        with pytest.raises(IndexError):
            prepared(tmp_path)
    return tmp_path / "out"


def test_changed_text_starts_again(tmp_path, unfinished):
    assert (unfinished / "parts").exists()
    corpus = load_corpus(str(prepared(tmp_path, {**TEXT, "train-0.txt": "z z z z\n"})))
    assert corpus.words[2:] == ["z", "c", "b"]


def test_other_splits_of_the_same_files_start_again(tmp_path, unfinished):
    swapped = {"train": "train*", "valid": "test*", "test": "valid*"}
    prepare(find_shards(tmp_path / "source", swapped), unfinished, max_vocab=100, block_bytes=16)
    corpus = load_corpus(str(unfinished))
    assert text(corpus, "valid") == "<unk> <eos>"
    assert text(corpus, "test") == "a <unk> <eos>"


def test_a_finished_corpus_is_not_overwritten(tmp_path):
    folder = prepared(tmp_path)
    (folder / "parts").mkdir()  # as a kill at the last moment leaves it
    with pytest.raises(UserError, match="already"):
        prepared(tmp_path)
    assert not (folder / "parts").exists()


def test_a_folder_with_other_files_is_not_used(tmp_path):
    write(tmp_path / "out", {"notes.txt": "mine"})
    with pytest.raises(UserError, match="not empty"):
        prepared(tmp_path)


# --- bad input ------------------------------------------------------------------------------------------------------


def test_text_that_is_not_utf8_is_an_error_with_file_and_line(tmp_path):
    with pytest.raises(UserError, match=r"train-1\.txt, line 12,"):
        prepared(tmp_path, {**TEXT, "train-1.txt": b"abc\n" * 11 + b"caf\xe9\n"})


def test_a_split_without_words_is_an_error(tmp_path):
    with pytest.raises(UserError, match="valid"):
        prepared(tmp_path, {**TEXT, "valid.txt": "\n \n"})
    with pytest.raises(UserError, match="train"):
        prepared(tmp_path, {**TEXT, "train-0.txt": "", "train-1.txt": ""})


def test_too_little_disk_is_an_error_before_anything_is_written(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=8 * 15 - 1))  # 15 ids, twice
    with pytest.raises(UserError, match="GB"):
        prepared(tmp_path)
    assert not (tmp_path / "out").exists()


def test_finished_blocks_need_no_more_disk(tmp_path, unfinished, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    (unfinished / "train.bin").write_bytes(b"1234")  # of the earlier start, which was killed while it wrote

    def disk_usage(path):
        assert not (unfinished / "train.bin").exists()
        return usage._replace(free=8 * 15 - 1)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    prepare(find_shards(tmp_path / "source"), unfinished, max_vocab=100, block_bytes=16)


def test_a_missing_id_file_is_an_error_that_names_it(tmp_path):
    folder = prepared(tmp_path)
    os.remove(folder / "valid.bin")
    with pytest.raises(UserError, match=r"valid\.bin"):
        load_corpus(str(folder))


def test_characters_need_the_text_itself(tmp_path):
    with pytest.raises(UserError, match=r"data\.level"):
        load_corpus(str(prepared(tmp_path)), level="char")

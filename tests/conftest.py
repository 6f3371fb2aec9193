"""Shared fixtures: no test reads or writes outside its own folder, and none needs a corpus that is not at hand."""

import os
import signal
from pathlib import Path

import pytest
import torch

os.environ["COLUMNS"] = "200"  # the console asks once, when it is made: no table is cut in a test
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in a shell's background, which every child would inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)
import interpreter  # noqa: F401  (before anything imports Triton, which decides then how kernels run)
from highrank.data.corpus import Corpus, read_corpus

WORDS = ["the", "a", "cat", "dog", "bird", "sees", "hears", "likes", "small", "big", "old", "red", "runs", "eats"]


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("HIGHRANK_DATA", raising=False)
    torch.manual_seed(0)


def write_toy_corpus(folder: Path, lines: int = 120) -> Path:
    """A small text, the same at every call, in which most words follow from the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    for s, (split, count) in enumerate({"train": lines, "valid": lines // 4, "test": lines // 4}.items()):
        text = ""
        for i in range(count):
            word, words = (i * i + s) % len(WORDS), []
            for j in range(4 + (i * 7 + s) % 6):
                words.append(WORDS[word])
                word = (5 * word + 3 + (i + j) % 5 // 4) % len(WORDS)
            text += " ".join(words) + "\n"
        (folder / f"{split}.txt").write_text(text)
    return folder


@pytest.fixture
def toy_folder(tmp_path: Path) -> Path:
    return write_toy_corpus(tmp_path / "toy")


@pytest.fixture
def toy_corpus(toy_folder: Path) -> Corpus:
    return read_corpus(toy_folder, cache=False)


@pytest.fixture
def corpora() -> Path:
    """The folder of real corpora, where there is one: HIGHRANK_TEST_DATA, or shared/data beside the checkout."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("HIGHRANK_TEST_DATA", default))
    if not (folder / "penn" / "train.txt").exists():
        pytest.skip("no real corpora here: set HIGHRANK_TEST_DATA to a folder that holds penn/ and wikitext-2/")
    return folder

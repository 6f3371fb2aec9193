"""Shared fixtures. No test reads or writes outside its own folder, and none downloads a corpus."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

os.environ["COLUMNS"] = "200"  # the console reads it when it is created; wide enough for every table
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell; child processes inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
import triton_interpreter  # noqa: F401  (before any import of Triton, which reads TRITON_INTERPRET then)
from helpers import dialog_settings, highrank, settings, write_toy_corpus, write_toy_dialogs
from highrank.data.corpus import Corpus, read_corpus
from highrank.data.dialog import DialogCorpus, read_dialog_corpus


@pytest.fixture(scope="session", autouse=True)
def _isolated_fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep fixtures that serve several tests out of the user's cache; each test has a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("HIGHRANK_DATA", raising=False)
    monkeypatch.delenv("MPLBACKEND", raising=False)  # set by commands that ran in this process
    torch.manual_seed(0)


@pytest.fixture
def toy_folder(tmp_path: Path) -> Path:
    return write_toy_corpus(tmp_path / "toy")


@pytest.fixture
def toy_corpus(toy_folder: Path) -> Corpus:
    return read_corpus(toy_folder)


@pytest.fixture
def toy_dialogs(tmp_path: Path) -> DialogCorpus:
    return read_dialog_corpus(write_toy_dialogs(tmp_path / "dialogs"))


@pytest.fixture
def corpora() -> Path:
    """The folder of real corpora, where there is one: HIGHRANK_TEST_DATA, or shared/data beside the checkout."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("HIGHRANK_TEST_DATA", default))
    if not (folder / "penn" / "train.txt").exists():
        pytest.skip("no real corpora here: set HIGHRANK_TEST_DATA to a folder that holds penn/ and wikitext-2/")
    return folder


@pytest.fixture
def place(tmp_path: Path, toy_folder: Path) -> Path:
    """A folder to run commands in; it holds a toy corpus."""
    return tmp_path


@pytest.fixture
def trained(place: Path) -> Path:
    """A run of one epoch on the toy corpus."""
    highrank("train", "ptb-mos", *settings(), "--set", "data.corpus=toy", "--out", "run", "--max-epochs", 1, cwd=place)
    return place / "run"


@pytest.fixture
def trained_dialog(tmp_path: Path) -> Path:
    """A dialog run of two epochs on toy dialogs."""
    write_toy_dialogs(tmp_path / "dialogs")
    highrank("train", "swda-mos", *dialog_settings(), "--out", "talk", cwd=tmp_path)
    return tmp_path / "talk"

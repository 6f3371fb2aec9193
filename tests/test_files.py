"""Atomic writes, and one clear error for files that cannot be read or written."""

import errno
import math
from pathlib import Path

import pytest
import torch

from highrank.errors import UserError
from highrank.files import (
    output_folder,
    read_json,
    read_tensors,
    replacing,
    whole_folder,
    write_json,
    write_tensors,
    write_text,
    write_with,
)


def write_half(path):
    path.write_text("ha")
    raise OSError(errno.ENOSPC, "No space left on device")


def write_half_with_replacing(path):
    with replacing(path) as temporary:
        write_half(temporary)


@pytest.mark.parametrize("attempt", [write_half_with_replacing, lambda path: write_with(path, write_half)])
def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path, attempt):
    path = tmp_path / "page.txt"
    write_text(path, "old")
    with pytest.raises(UserError, match=r"page\.txt"):
        attempt(path)
    assert [p.name for p in tmp_path.iterdir()] == ["page.txt"]
    assert path.read_text() == "old"


def test_writers_create_folders_and_leave_one_file_each(tmp_path):
    folder = tmp_path / "a" / "b"
    write_json(folder / "x.json", {"word": "caf\u00e9", "ppl": math.inf})
    write_tensors(folder / "x.safetensors", {"t": torch.arange(6).view(2, 3).t()})
    write_with(folder / "x.png", lambda path: path.write_text(path.suffix))
    assert {p.name for p in folder.iterdir()} == {"x.json", "x.safetensors", "x.png"}
    assert read_json(folder / "x.json", "file") == {"word": "caf\u00e9", "ppl": math.inf}
    assert read_tensors(folder / "x.safetensors", "file")["t"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert (folder / "x.png").read_text() == ".png"


def test_json_keeps_letters_readable(tmp_path):
    write_json(tmp_path / "x.json", "caf\u00e9")
    assert "caf\u00e9" in (tmp_path / "x.json").read_text(encoding="utf-8")


def test_tensor_files_have_the_usual_permissions(tmp_path):
    write_text(tmp_path / "x.txt", "")
    write_tensors(tmp_path / "x.safetensors", {"t": torch.zeros(1)})
    assert (tmp_path / "x.safetensors").stat().st_mode == (tmp_path / "x.txt").stat().st_mode


def test_an_output_folder_is_checked_and_left_as_it_was(tmp_path):
    assert output_folder(tmp_path / "new" / "deep") == tmp_path / "new" / "deep"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("")
    output_folder(tmp_path / "kept")
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_output_folder_that_is_a_file_is_an_error(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        output_folder(tmp_path / name)


@pytest.mark.parametrize("read", [read_json, read_tensors])
def test_a_missing_or_damaged_file_is_an_error(tmp_path, read):
    with pytest.raises(UserError, match="nowhere"):
        read(tmp_path / "nowhere", "thing")
    (tmp_path / "bad").write_bytes(b"{")
    with pytest.raises(UserError, match="bad"):
        read(tmp_path / "bad", "thing")


def test_writing_below_a_file_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"x\.txt"):
        write_text(tmp_path / "file" / "x.txt", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_whole_folder_appears_only_when_it_is_complete(tmp_path):
    folder = tmp_path / "new"

    def fill(fail):
        with whole_folder(folder) as temporary:
            (temporary / "x").write_text("x")
            assert not folder.exists()
            if fail:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(fail=True)
    assert list(tmp_path.iterdir()) == []
    fill(fail=False)
    assert [p.name for p in tmp_path.iterdir()] == ["new"]
    with pytest.raises(UserError, match="new"):
        fill(fail=False)  # it is not empty any more


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError), whole_folder(Path(".")):
        pass
    assert list(tmp_path.iterdir()) == []

"""Nothing half-written is left behind, and every command says in one shape where its output is."""

import errno
import json
import math
import os
from pathlib import Path

import pytest
import torch

from highrank.cli import options
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
    written,
)


def test_where_the_output_is():
    page, figure = Path("out/page.html"), Path("out/figure.png")
    assert written(page) == "Written to out/page.html"
    assert written((page, "3 MB")) == "Written to out/page.html (3 MB)"
    assert written(page, (figure, "loss")) == "Written to:\n  out/page.html\n  out/figure.png (loss)"


@pytest.mark.parametrize("as_json", [False, True])
def test_it_is_said_in_full_beside_the_results(as_json, capsys, monkeypatch):
    """Never cut, nor read as markup, and never in the JSON on standard output."""
    for name in ("out", "err"):
        monkeypatch.setattr(getattr(options, name), "width", 20)
    file = Path("runs/[bold]a folder with a long name[/bold]/page.html")
    options.say_written(file, as_json=as_json)
    said = capsys.readouterr()
    assert (said.err if as_json else said.out) == f"Written to {file}\n"
    assert (said.out if as_json else said.err) == ""


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "page.txt"
    write_text(path, "old")

    def half(temporary):
        temporary.write_text("ha")
        raise OSError(errno.ENOSPC, "No space left on device")

    def with_replacing():
        with replacing(path) as temporary:
            half(temporary)

    for attempt in (with_replacing, lambda: write_with(path, half)):
        with pytest.raises(UserError, match=r"cannot write .*page\.txt: No space left on device; free some space\."):
            attempt()
        assert [p.name for p in tmp_path.iterdir()] == ["page.txt"]
        assert path.read_text() == "old"


def test_writers_make_folders_and_leave_one_file(tmp_path):
    folder = tmp_path / "a" / "b"
    write_json(folder / "x.json", {"word": "caf\u00e9"})
    write_tensors(folder / "x.safetensors", {"t": torch.arange(6).view(2, 3).t()}, {"about": "it"})
    write_with(folder / "x.png", lambda path: path.write_text(path.suffix))
    assert {p.name for p in folder.iterdir()} == {"x.json", "x.safetensors", "x.png"}
    assert json.loads((folder / "x.json").read_text(encoding="utf-8")) == {"word": "caf\u00e9"}
    assert "caf\u00e9" in (folder / "x.json").read_text(encoding="utf-8")  # readable in any editor
    assert read_tensors(folder / "x.safetensors", "file")["t"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert (folder / "x.png").read_text() == ".png"  # matplotlib chooses a format by it
    modes = {(folder / name).stat().st_mode for name in ("x.json", "x.safetensors")}
    assert len(modes) == 1  # safetensors alone would let nobody else read them


def test_a_folder_is_tried_out_and_left_as_it_was(tmp_path):
    assert output_folder(tmp_path / "new" / "deep") == tmp_path / "new" / "deep"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("")
    output_folder(tmp_path / "kept")
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["mine.txt"]
    with pytest.raises(UserError, match=r"mine\.txt is a file: choose a folder with --out\."):
        output_folder(tmp_path / "kept" / "mine.txt")
    with pytest.raises(UserError, match=r"cannot write to .*; choose another folder\."):
        output_folder(tmp_path / "kept" / "mine.txt" / "below")


def test_what_cannot_be_read_gets_one_sentence(tmp_path):
    for read in (read_json, read_tensors):
        with pytest.raises(UserError, match=r"there is no thing at .*nowhere\."):
            read(tmp_path / "nowhere", "thing")
        (tmp_path / "bad").write_bytes(b"{")
        with pytest.raises(UserError, match=r"the thing at .*bad is damaged .*; restore it or start anew\."):
            read(tmp_path / "bad", "thing")


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*; choose another folder\."):
        write_text(tmp_path / "file" / "x.txt", "x")
    assert os.listdir(tmp_path) == ["file"]


def test_the_folder_one_is_in_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"\. is the folder you are in: choose a new one"), whole_folder(Path(".")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_infinite_numbers_are_written_as_json_and_read_back(tmp_path):
    value = {
        "ppl": math.inf, "a \"b\": c": [-math.inf, 1.5, {"x": math.inf}], "Infinity": "Infinity", "list": ["Infinity"],
        "text": "a\n  Infinity\n, Infinity", "none": [],
    }  # fmt: skip
    write_json(tmp_path / "x.json", value)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text, parse_constant=lambda word: pytest.fail(word)) == value
    assert read_json(tmp_path / "x.json", "thing") == value


def test_what_is_printed_for_programs_is_json(capsys):
    options.print_json({"nll": math.nan, "all": [math.inf, (1.0, -math.inf)], "text": "Infinity", "true": True})
    printed = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert printed == {"nll": None, "all": [None, [1.0, None]], "text": "Infinity", "true": True}

"""Mistakes in the command line itself: one sentence of our own, exit code 2, for every command."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from helpers import fails, highrank
from highrank.cli import app
from highrank.cli.usage import limits


def every_command(command=None, path=()):
    command = command or typer.main.get_command(app)
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, (*path, name))


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_every_command_has_help_and_refuses_what_it_does_not_know(path, tmp_path):
    whole = " ".join(("highrank", *path))
    assert highrank(*path, "-h", cwd=tmp_path).stdout == (told := highrank(*path, "--help", cwd=tmp_path).stdout)
    assert told.startswith(f"Usage: {whole} ")
    assert max(map(len, told.splitlines())) <= 80
    assert "..." not in told.partition("Commands:")[2]  # no line of a list of commands is cut short
    assert not re.search(r"<(?!eos>)|[{}]|x[<>]=", told)  # no type of Python's, no limits in symbols
    assert fails(*path, "--nope", cwd=tmp_path).startswith(f"highrank: '{whole}' has no option \"--nope\"; ")


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("analyze", ["[OPTIONS] [RUN]", "Arguments: RUN... Run folders", "--projection N ", "[at least 10]"]),
        ("generate", ["[OPTIONS] RUN C", "Arguments: RUN A run", "--top-p X ", "[default: 0; from 0 to 2^63 - 1]"]),
        ("export", ["--out FOLDER ", "--max-shard-size SIZE "]),
        ("record", ["--out PATH "]),  # not named where it is declared
        ("train", ["--set KEY=VALUE ", "--graphs / --no-graphs ", "--resume C"]),
    ],
)
def test_help_names_values_and_says_their_limits_in_words(command, parts, tmp_path):
    told = " ".join(highrank(command, "--help", cwd=tmp_path).stdout.split())
    for part in parts:
        assert part in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("trian", '\'highrank\' has no command "trian"; did you mean "train"?'),
        ("fly", "'highrank' has no command \"fly\"; 'highrank --help' shows what there is."),
        ("data lst", '\'highrank data\' has no command "lst"; did you mean "list"?'),
        ("--vresion", '\'highrank\' has no option "--vresion"; did you mean "--version"?'),
        ("runs --hepl", '\'highrank runs\' has no option "--hepl"; did you mean "--help"?'),
        ("train x --dev cpu", '\'highrank train\' has no option "--dev"; did you mean "--device"?'),
        ("runs -x", "'highrank runs' has no option \"-x\"; 'highrank runs --help' shows what there is."),
        ("train", "RECIPE is missing (a recipe's name; 'highrank recipes' shows them): 'highrank train --help' shows"),
        ("compare a", "RUN_B is missing (another, trained on the same corpus): 'highrank compare --help' shows what"),
        (
            "data verify",
            "CORPUS is missing (penn, wikitext-2 or pydoc): 'highrank data verify --help' shows what there",
        ),
        ("train x --max-epochs", "--max-epochs needs a value: a whole number of at least 0."),
        ("train x --out", "--out needs a value: 'highrank train --help' shows what there is."),
        ("runs --json=yes", "--json takes no value: write it alone."),
        ("train x --no-graphs=1", "--no-graphs takes no value: write it alone."),
        ("train x --max-epochs 1 --max-epochs two", '--max-epochs must be a whole number of at least 0, got "two".'),
        ("bench lstm --batch=0", '--batch must be a whole number of at least 1, got "0".'),
        ("evaluate x --lr -1", '--lr must be a number of at least 0, got "-1".'),
        ("theory --rank 1.5", '--rank must be a whole number, got "1.5".'),
        ("quickstart --seed -1", '--seed must be a whole number from 0 to 2^32 - 1, got "-1".'),
        ("generate x --prompt the cat sees", "'highrank generate' does not take \"cat sees\": quote words that"),
        ("data --", "missing command: 'highrank data --help' shows what there is."),
    ],
)
def test_one_sentence_says_what_is_wrong_and_what_to_do(words, sentence, tmp_path):
    assert fails(*words.split(), cwd=tmp_path).startswith(f"highrank: {sentence}")


@pytest.mark.parametrize("path", [(), ("data",), ("bench",)])
def test_nothing_at_all_gets_the_help(path, tmp_path):
    assert "Commands:" in highrank(*path, cwd=tmp_path, check=2).stderr


def test_a_reader_that_goes_away_is_no_error():
    command = [sys.executable, "-m", "highrank", "recipes", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("moment", ["highrank.cli.quickstart.quickstart", "typer.main.get_command"])
def test_ctrl_c_says_so(moment, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupted)
    assert highrank("quickstart", cwd=tmp_path, check=130).stderr == "highrank: interrupted.\n"


@pytest.mark.parametrize("but", ["raise", "raise ImportError", "pass"])  # as extensions make of it
def test_ctrl_c_says_so_while_the_command_is_still_being_imported(tmp_path, but):
    lines = (
        "import os, signal",
        "try:",
        "    os.kill(os.getpid(), signal.SIGINT)",
        "except BaseException:",
        f"    {but}",
    )
    (tmp_path / "typer.py").write_text("\n".join(lines))  # found before typer
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    module, function = project["project"]["scripts"]["highrank"].split(":")
    for how in (["-m", "highrank"], ["-c", f"from {module} import {function}; {function}()"]):
        done = subprocess.run(
            [sys.executable, *how, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "highrank: interrupted.\n")


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({}, ""),
        ({"min": 1}, "at least 1"),
        ({"max": 0.5}, "at most 0.5"),
        ({"min": 0, "max": 2**32 - 1}, "from 0 to 2^32 - 1"),
    ],
)
def test_limits_in_words(ends, words):
    assert limits(typer.Option(**ends)) == words


def test_threads_spin_briefly_unless_told_otherwise(tmp_path, monkeypatch):
    for before, after in (("7", "7"), (None, "3000")):
        monkeypatch.setenv("GOMP_SPINCOUNT", "7")
        if before is None:
            monkeypatch.delenv("GOMP_SPINCOUNT")
        highrank("--version", cwd=tmp_path)
        assert os.environ["GOMP_SPINCOUNT"] == after

"""Errors and interruptions, for every command: one line on standard error, a documented exit code, no traceback."""

import errno
import os
import subprocess
import sys

import pytest
import typer

from helpers import PROCESS_TIMEOUT, as_process, fails, highrank
from highrank.cli import app, recipes


def command_paths(command=None, path=()):
    command = command or typer.main.get_command(app)
    yield path
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from command_paths(subcommand, (*path, name))


@pytest.mark.parametrize("path", list(command_paths()), ids=" ".join)
def test_every_command_has_help_that_fits_80_columns(path, tmp_path):
    text = highrank(*path, "--help", cwd=tmp_path).stdout
    assert text == highrank(*path, "-h", cwd=tmp_path).stdout
    assert text.startswith(" ".join(("Usage: highrank", *path)))
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.partition("Commands:")[2]  # no summary is cut short


@pytest.mark.parametrize("path", list(command_paths()), ids=" ".join)
def test_every_command_rejects_an_unknown_option(path, tmp_path):
    assert "--nope" in fails(*path, "--nope", cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("trian", "train"),  # the nearest command
        ("data lst", "list"),
        ("train x --dev cpu", "--device"),  # the nearest option
        ("train", "RECIPE"),
        ("compare a", "RUN_B"),
        ("train x --max-epochs", "--max-epochs"),
        ("train x --max-epochs two", "--max-epochs"),
        ("train x --max-epochs -1", "--max-epochs"),
        ("evaluate x --lr -1", "--lr"),
        ("runs --json=yes", "--json"),
        ("generate x --prompt the cat sees", "cat sees"),
    ],
)
def test_usage_errors_name_the_argument(arguments, name, tmp_path):
    assert name in fails(*arguments.split(), cwd=tmp_path)


@pytest.mark.parametrize("path", [(), ("data",)])
def test_a_group_without_a_command_prints_its_help(path, tmp_path):
    assert "Commands:" in highrank(*path, cwd=tmp_path, check=2).stderr


def test_version(tmp_path):
    assert highrank("--version", cwd=tmp_path).stdout.split()[0] == "highrank"


def test_a_user_error_in_a_process_of_its_own_shows_no_traceback(tmp_path):
    assert "ptb-moss" in fails("train", "ptb-moss", cwd=tmp_path, run=as_process)


def test_an_os_error_names_the_file(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "secret.txt")

    monkeypatch.setattr(recipes, "print_json", fail)
    assert "secret.txt" in fails("recipes", "--json", cwd=tmp_path)


@pytest.mark.parametrize("command", ["quickstart", "theory", "report"])
def test_output_folders_are_checked_before_the_work(command, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "records").mkdir()
    assert "file" in fails(*command.split(), "--out", "file", cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "records"]


def test_a_closed_pipe_is_silent():
    command = [sys.executable, "-m", "highrank", "recipes", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_ctrl_c_prints_one_line(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(recipes, "print_json", interrupt)
    assert highrank("recipes", "--json", cwd=tmp_path, check=130).stderr == "highrank: interrupted.\n"


def test_ctrl_c_during_imports_prints_one_line(tmp_path):
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")  # shadows typer
    command = [sys.executable, "-m", "highrank", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PROCESS_TIMEOUT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "highrank: interrupted.\n")


def test_help_imports_no_heavy_package(tmp_path):
    heavy = {"torch", "numpy", "scipy", "matplotlib", "triton", "rich.progress"}
    code = f"import sys, highrank.cli; print({heavy} & {{*sys.modules}} or '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_package_needs_torch_and_numpy_only():
    code = (
        "import sys, highrank; head = highrank.MoSHead(4, 3, 10, 2); "
        "print({'rich', 'typer', 'matplotlib', 'jinja2', 'filelock', 'safetensors'} & {*sys.modules} or '')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(("before", "after"), [("7", "7"), (None, "600")])
def test_openmp_threads_spin_briefly_by_default(before, after, tmp_path, monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", before or "")
    if before is None:
        monkeypatch.delenv("GOMP_SPINCOUNT")
    highrank("--version", cwd=tmp_path)
    assert os.environ["GOMP_SPINCOUNT"] == after

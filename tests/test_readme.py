"""Run every command and every Python block of the README."""

import re
import shlex
from pathlib import Path

import pytest

from helpers import highrank

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def commands():
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("highrank ")]


def test_the_commands_run_in_the_order_shown(tmp_path):
    elsewhere = ("--data-dir", "quickstart", "explore")  # explore runs until Ctrl-C: tests/cli/test_explore.py
    shown = [command for command in commands() if not any(word in command for word in elsewhere)]
    assert shown
    for command in shown:
        highrank(*shlex.split(command)[1:], cwd=tmp_path)


def test_the_commands_for_the_paper_run(tmp_path, corpora):
    (tmp_path / "corpora").symlink_to(corpora)
    for command in commands():
        if "--data-dir" in command:
            small = command.replace("25m", "1s") + " --set model.hidden_sizes=32,32,32 --set model.embed_dim=16"
            highrank(*shlex.split(small)[1:], cwd=tmp_path)


def test_the_python_runs():
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("target", ["quickstart", "test", "check"])
def test_the_make_targets_exist(target):
    assert f"\n{target}:" in (ROOT / "Makefile").read_text()

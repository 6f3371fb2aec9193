"""Every command and every line of Python that the README shows, run as it stands."""

import re
import shlex
from pathlib import Path

import pytest

from helpers import highrank

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def commands():
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("highrank ")]


def test_the_commands_work_in_the_order_shown(tmp_path):
    shown = [command for command in commands() if "--data-dir" not in command]
    assert len(shown) >= 7
    for command in shown:
        highrank(*shlex.split(command)[1:], cwd=tmp_path)


def test_the_paper_command_works(tmp_path, corpora):
    (command,) = [command for command in commands() if "--data-dir" in command]
    (tmp_path / "corpora").symlink_to(corpora)
    small = command.replace("25m", "1s") + " --set model.hidden_sizes=32,32,32 --set model.embed_dim=16"
    highrank(*shlex.split(small)[1:], cwd=tmp_path)


def test_the_python_works():
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("target", ["quickstart", "test", "check"])
def test_the_make_targets_exist(target):
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    assert f"\n{target}:" in makefile

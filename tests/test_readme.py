"""Run every command and every Python block of the README."""

import re
import shlex
import tomllib
from pathlib import Path

from helpers import highrank

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def commands():
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("highrank ")]


def typed_lines():
    return [line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines()]


def test_the_clone_has_a_placeholder_that_is_explained():
    line = blocks("bash")[0].splitlines()[0]
    clone = re.match(r"git clone ([A-Z]+) (\w+) && cd (\w+) +# (.*)", line)
    assert clone[2] == clone[3]
    assert clone[1] in clone[4]


def test_the_environment_of_the_setup_is_activated_before_the_first_command():
    lines = typed_lines()
    before = lines[: lines.index(commands()[0])]
    venv = re.search(r"^venv=(.*)$", (ROOT / "setup.sh").read_text(), flags=re.M)[1]
    assert before.index("make quickstart") < before.index(f"source {venv}/bin/activate")


def test_the_versions_of_python_are_those_that_can_install_it():
    """Compare the README with the package, its classifiers, and the versions that setup.sh accepts."""
    first, last = re.search(r"Python 3\.(\d+) to 3\.(\d+)", README).groups()
    assert PROJECT["requires-python"] == f">=3.{first},<3.{int(last) + 1}"
    classified = re.findall(r":: 3\.(\d+)", " ".join(PROJECT["classifiers"]))
    assert [int(minor) for minor in classified] == [*range(int(first), int(last) + 1)]
    assert f"(3, {first}) <= sys.version_info[:2] <= (3, {last})" in (ROOT / "setup.sh").read_text()


def test_the_set_up_includes_what_the_commands_need():
    """`make quickstart` installs every extra that one of the README's commands needs."""
    installed = re.search(r"^quickstart:\n\t@\./setup\.sh (\S+)", (ROOT / "Makefile").read_text(), flags=re.M)[1]
    extras = PROJECT["optional-dependencies"].keys()
    needed = extras & {command.split()[1] for command in commands()}  # an extra has the name of its command
    assert needed <= {*installed.split(",")}


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

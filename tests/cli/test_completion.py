import subprocess
import sys

import pytest

from helpers import highrank


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("highrank data ge", {"get"}),
        ("highrank train pydoc-m", {"pydoc-moc", "pydoc-mos"}),
        ("highrank recipes swda-mo", {"swda-moc", "swda-mos"}),
    ],
)
def test_tab_completes_commands_and_recipes(line, expected):
    environment = {"_HIGHRANK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    command = [sys.executable, "-c", "from highrank.__main__ import main; main()"]
    done = subprocess.run(
        command, env={"PYTHONPATH": ":".join(sys.path), **environment}, capture_output=True, text=True
    )
    assert set(done.stdout.split()) == expected, done.stderr


def test_the_completion_script_can_be_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: "bash")
    assert "_HIGHRANK_COMPLETE" in highrank("--show-completion", cwd=tmp_path).stdout

"""`highrank export` and `highrank import`."""

import shlex

import pytest

from helpers import fails, highrank
from highrank.runs import checkpoint as checkpoints


def command_in(stdout):
    """Return the arguments of the command that the output suggests."""
    return shlex.split(next(line for line in stdout.splitlines() if line.startswith("  highrank")))[1:]


@pytest.mark.parametrize("averages_only", [False, True])
def test_the_suggested_commands_import_and_resume(place, trained, averages_only):
    trained.rename(place / "a run")
    options = ["--averages-only"] if averages_only else []
    done = highrank("export", "a run", *options, cwd=place)
    assert (place / "exports" / "a run").is_dir()
    done = highrank(*command_in(done.stdout), cwd=place)
    highrank(*command_in(done.stdout), "--max-epochs", 2, cwd=place)
    assert checkpoints.read(place / "runs" / "a run").state.epoch == 2


def test_existing_folders_are_not_overwritten(place, trained):
    highrank("export", "run", cwd=place)
    assert "exports/run" in fails("export", "run", cwd=place)
    highrank("import", "exports/run", cwd=place)
    assert "runs/run" in fails("import", "exports/run", cwd=place)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("export run --out x --max-shard-size big", "big"),
        ("export run --out x --dtype int8", "int8"),
        ("export toy --out x", "toy"),
        ("import toy --out x", "toy"),
        ("import run --out x", "highrank export"),
    ],
)
def test_a_wrong_argument_is_an_error(place, trained, arguments, name):
    assert name in fails(*arguments.split(), cwd=place)
    assert not (place / "x").exists()


def test_other_commands_suggest_importing_an_export(place, trained):
    highrank("export", "run", "--out", "export", cwd=place)
    assert "highrank import" in fails("evaluate", "export", cwd=place)

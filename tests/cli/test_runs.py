"""`highrank runs`: list the runs in a folder."""

import json
import shutil
import subprocess
import sys

from helpers import CPU, fails, highrank
from highrank.cli.console import out
from highrank.data.corpus import read_corpus
from highrank.runs.folder import Run
from highrank.runs.training import train_run


def rows(folder, cwd):
    return json.loads(highrank("runs", folder, "--json", cwd=cwd).stdout)


def test_runs_lists_recipe_epoch_and_perplexities(place, trained):
    (row,) = rows(".", place)
    summary = json.loads((trained / "summary.json").read_text())
    assert (row["run"], row["recipe"], row["epoch"], row["state"]) == ("run", "ptb-mos", 1, "can resume")
    assert row["corpus"] == str(place / "toy")
    assert (row["valid_ppl"], row["test_ppl"]) == (summary["valid_ppl"], summary["test_ppl"])
    shown = highrank("runs", ".", cwd=place).stdout.split()
    assert {"toy", f"{summary['test_ppl']:.2f}"} <= {*shown}


def test_listing_runs_does_not_import_torch(place, trained):
    code = "import sys; from highrank.__main__ import main; main(); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "runs", "."], cwd=place, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_exports_are_not_listed(place, trained):
    highrank("export", "run", "--out", "export", cwd=place)
    assert [row["run"] for row in rows(".", place)] == ["run"]


def test_hidden_folders_are_not_listed(place, trained):
    shutil.copytree(trained, place / ".run.123.tmp")  # as a killed import leaves it
    assert [row["run"] for row in rows(".", place)] == ["run"]
    assert [row["run"] for row in rows(".run.123.tmp", place)] == [".run.123.tmp"]  # unless it is asked for


def test_damaged_runs_are_listed_as_damaged(place, trained):
    shutil.copytree(trained, place / "worse")
    (place / "worse" / "run.json").write_text("{")
    shutil.copytree(trained, place / "worst")
    summary = json.loads((trained / "summary.json").read_text())
    (place / "worst" / "summary.json").write_text(json.dumps(summary | {"valid_ppl": "low"}))
    states = {row["run"]: row["state"] for row in rows(".", place)}
    assert states["run"] == "can resume"
    assert states["worse"].startswith("damaged")
    assert states["worst"].startswith("damaged")
    highrank("runs", ".", cwd=place)


def test_a_summary_of_an_earlier_state_is_not_listed(place, trained):
    run = Run(trained)
    answers = iter([False, True])  # interrupted in the middle of an epoch
    train_run(run.recipe(), read_corpus(place / "toy"), run, CPU, resume=True, should_stop=lambda: next(answers))
    (row,) = rows(".", place)
    assert (row["epoch"], row["valid_ppl"], row["test_ppl"]) == (1, None, None)


def test_long_names_are_not_cut(place, trained, monkeypatch):
    name = "a-run-with-a-name-that-is-long-enough-to-be-cut-in-eighty-columns"
    trained.rename(place / name)
    monkeypatch.setattr(out, "width", 80)
    lines = [line.split(" ")[0] for line in highrank("runs", ".", cwd=place).stdout.splitlines()]
    assert name in "".join(lines)


def test_a_folder_without_runs(place):
    assert rows("toy", place) == []
    assert "highrank train" in highrank("runs", "toy", cwd=place).stdout


def test_a_missing_folder_is_an_error(place):
    assert "nope" in fails("runs", "nope", cwd=place)

import json
import re
from pathlib import Path

import pytest

from helpers import fails, highrank
from highrank.analysis.finite_language import checks, sweep

DOCS = Path(__file__).parents[2] / "docs"
SMALL = ("--contexts", 10, "--words", 8, "--rank", 6, "--components", 4, "--quick")


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch):
    monkeypatch.setattr(sweep, "EVALUATIONS", {"softmax": 120, "moc": 120, "mos": 120})  # --quick takes a third


@pytest.mark.parametrize("extra", [(), ("--bias", "--unigram")], ids=" ".join)
def test_the_report_has_the_checks_and_the_fits(tmp_path, extra):
    highrank("theory", *SMALL, *extra, "--out", "lab", cwd=tmp_path)
    report = json.loads((tmp_path / "lab" / "report.json").read_text())
    bias = "--bias" in extra
    assert report["ranks"]["a"] == 6
    assert report["enough_for_softmax"] == 5 - bias
    assert [c["holds"] for c in report["checks"]] == [True] * 9
    assert {p["found"]["embed_dim"] for p in report["points"]} == {1, 2, 3, 4, 5, 6}
    assert report["provenance"]["torch"]
    for point in report["points"]:
        found = point["found"]
        if point["head"] != "mos":
            bound = found["embed_dim"] + 1 + bias
            assert found["rank"] <= bound
            assert found["rank_bound"] == (bound if bound < 8 else None)  # the rank is at most the number of words
            assert point["lower_bound"] <= found["kl"]
            assert (point["lower_bound"] == 0) == (found["embed_dim"] >= report["enough_for_softmax"])


def test_figures_are_written(tmp_path):
    done = highrank("theory", *SMALL, "--dims", "1-2", "--out", "lab", cwd=tmp_path)
    for name in ("kl.png", "kl.svg", "rank.png", "rank.svg"):
        assert (tmp_path / "lab" / name).exists()
        assert f"lab/{name}" in done.stdout


def test_a_failing_check_ends_with_code_1(tmp_path, monkeypatch):
    broken = checks.Check("Property 9", "", "", False)
    monkeypatch.setattr(checks, "check_algebra", lambda *_: [broken])
    done = highrank("theory", *SMALL, "--dims", "1", "--out", ".", cwd=tmp_path, check=1)
    assert "Property 9" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dims", "0"],
        ["--dims", "two"],
        ["--dims", "1,,2"],
        ["--dims", "5-2"],
        ["--dims", "999999"],
        ["--rank", "33"],
        ["--components", "1"],
        ["--contexts", "1"],
        ["--seed", "-1"],
        ["--out", "file/lab"],
    ],
    ids=" ".join,
)
def test_mistakes_end_with_one_sentence_and_write_nothing(tmp_path, arguments):
    (tmp_path / "file").write_text("")
    fails("theory", *arguments, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_document_names_options_that_exist(tmp_path):
    shown = set(re.findall(r"(?<!-)--[a-z]+", (DOCS / "theory.md").read_text()))
    help_text = highrank("theory", "--help", cwd=tmp_path).stdout
    assert len(shown) >= 8
    assert not [option for option in shown if option not in help_text]

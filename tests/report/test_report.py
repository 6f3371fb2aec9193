"""The report reads records, shows what is missing, and keeps the README's tables true."""

import json
from pathlib import Path

import pytest

from highrank.errors import UserError
from highrank.report import NOT_RUN, cells, fill, load_records, results_table, sections

ROOT = Path(__file__).parents[2]
RECORD = {
    "recipe": "ptb-mos", "epochs": 7, "seconds": 120.0, "valid_ppl": 70.123, "test_ppl": 68.456, "seed": 28,
    "provenance": {"commit": "abc", "machine": "NVIDIA H200"}, "dynamic": {"valid_ppl": 60.1, "test_ppl": 59.2},
}  # fmt: skip


def write(results, name, record):
    (results / "runs").mkdir(parents=True, exist_ok=True)
    (results / "runs" / name).write_text(json.dumps(record))


def test_the_readme_is_up_to_date():
    """If this fails: highrank report --readme README.md"""
    readme = (ROOT / "README.md").read_text()
    assert fill(readme, sections(ROOT / "results")) == readme


def test_records_stand_beside_the_paper(tmp_path):
    write(tmp_path, "a.json", RECORD)
    rows = {row["recipe"]: row for row in cells(load_records(tmp_path))}
    assert rows["ptb-mos"]["paper_test"] == 55.97
    assert rows["ptb-mos"]["test"] == 68.456
    assert rows["ptb-mos"]["commit"] == "abc"
    assert rows["ptb-moc"]["record"] is None
    table = results_table(load_records(tmp_path))
    assert "**70.12 / 68.46** | 60.10 / 59.20 | 58.08 / 55.97 | 56.54 / 54.44" in table
    assert f"| `ptb-moc` | {NOT_RUN} |" in table


def test_what_is_not_a_record_is_named(tmp_path):
    write(tmp_path, "a.json", {"recipe": "ptb-mos"})
    with pytest.raises(UserError, match=r"a\.json is not a run record: it lacks epochs"):
        load_records(tmp_path)


def test_missing_markers_are_named():
    with pytest.raises(UserError, match="lacks the markers"):
        fill("no markers", {"results": "x"})
    marked = "a\n<!-- x: made by 'highrank report' -->\nold\n<!-- end of x -->\nb"
    once = fill(marked, {"x": "new"})
    assert "old" not in once
    assert fill(once, {"x": "new"}) == once


def test_every_committed_record_says_where_it_comes_from():
    records = load_records(ROOT / "results")
    assert records
    for record in records:
        assert record.data["provenance"]["commit"], record.file
        assert record.data["provenance"]["torch"], record.file
        assert record.data["curve"]["valid_ppl"], record.file

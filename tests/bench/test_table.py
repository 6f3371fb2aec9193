"""Benchmarks as jobs that fill in rows, and rows as CSV files."""

from dataclasses import replace

import pytest

from highrank.bench.mos_nll import LossRow
from highrank.bench.table import Benchmark, fill_times_ours, read_rows, run_benchmark, to_columns, write_csv
from highrank.errors import UserError

ORIGIN = {"highrank": "1", "commit": None, "python": "3", "torch": "2", "machine": 'a, "b"', "started": "now"}


def loss_row(implementation="naive", **changes):
    known = {"size": "tiny", "N": 16, "K": 3, "D": 8, "V": 60, "dtype": "float32", "device": "cpu"}
    return LossRow(**{**ORIGIN, **known, "implementation": implementation, **changes})


def test_a_job_that_fails_does_not_stop_the_others(tmp_path):
    def fail(row):
        raise RuntimeError("no kernel image")

    jobs = [(loss_row(), fail), (loss_row(), lambda row: replace(row, median_ms=2.0))]
    rows = run_benchmark(Benchmark("x", jobs, lambda rows: rows), tmp_path / "x.csv")
    assert [row.status for row in rows] == ["failed: RuntimeError: no kernel image", "ok"]
    assert read_rows(tmp_path / "x.csv", LossRow) == rows


def test_the_file_is_complete_after_every_job(tmp_path):
    file = tmp_path / "x.csv"
    counts = []

    def count_rows(row):
        counts.append(len(read_rows(file, LossRow)) if file.exists() else 0)
        return row

    run_benchmark(Benchmark("x", [(loss_row(), count_rows)] * 3, lambda rows: rows), file)
    assert counts == [0, 1, 2]


def test_ratios_compare_with_the_fastest_of_ours_at_the_same_size():
    rows = [
        loss_row("highrank, chunked", best_ms=4.0),
        loss_row("highrank, triton", best_ms=1.0),
        loss_row("peer", best_ms=3.0),
        loss_row("broken"),
        loss_row("highrank, chunked", best_ms=0.5, size="other"),
    ]
    assert [row.times_ours for row in fill_times_ours(rows)] == [4.0, 1.0, 3.0, None, 1.0]


def test_unknown_columns_are_ignored_and_missing_ones_take_their_default(tmp_path):
    path = tmp_path / "a.csv"
    write_csv(path, [to_columns(loss_row(median_ms=0.1 + 0.2, rounds=3))])
    path.write_text(path.read_text().replace("error", "unknown"))
    assert read_rows(path, LossRow) == [loss_row(median_ms=0.1 + 0.2, rounds=3)]


@pytest.mark.parametrize(("column", "value"), [("N", "2.5"), ("median_ms", "fast"), ("K", "")])
def test_a_cell_of_the_wrong_type_is_an_error_that_names_the_file(tmp_path, column, value):
    write_csv(tmp_path / "a.csv", [to_columns(loss_row(**{column: value}))])
    with pytest.raises(UserError, match=r"a\.csv"):
        read_rows(tmp_path / "a.csv", LossRow)


def test_a_missing_column_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("implementation,K\nx,3\n")
    with pytest.raises(UserError, match="dtype"):
        read_rows(tmp_path / "a.csv", LossRow)

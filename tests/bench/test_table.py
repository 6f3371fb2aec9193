"""Rows of benchmarks as CSV files."""

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from highrank.bench.lstm import LSTMRow
from highrank.bench.mos_nll import LossRow
from highrank.bench.scaling import ScalingRow
from highrank.bench.step import StepRow
from highrank.bench.table import Row, Table, machine_name, origin, read_rows
from highrank.errors import UserError

RESULTS = Path(__file__).parents[2] / "results" / "benchmarks"
ORIGIN = {"highrank": "1", "commit": None, "python": "3", "torch": "2", "machine": "a, b", "started": "now"}


@dataclass(frozen=True, kw_only=True)
class Sample(Row):
    name: str
    count: int
    graphs: bool
    ms: float | None = None


def sample(**changes):
    return Sample(**{"name": 'a "b", c', "count": 3, "graphs": False, "ms": 0.1 + 0.2, **ORIGIN, **changes})


def test_rows_survive_the_round_trip(tmp_path):
    table = Table(tmp_path / "new" / "a.csv", Sample)
    rows = [sample(), sample(graphs=True, ms=None, load=0.5)]
    for row in rows:
        table.add(row)
    assert read_rows(table.path, Sample) == rows


def test_the_file_is_complete_after_every_row(tmp_path):
    table = Table(tmp_path / "a.csv", Sample)
    for count in range(1, 3):
        table.add(sample())
        assert len(read_rows(table.path, Sample)) == count


def test_a_rows_own_columns_come_first(tmp_path):
    table = Table(tmp_path / "a.csv", Sample)
    table.add(sample())
    with open(table.path, newline="") as file:
        assert next(csv.reader(file))[:5] == ["name", "count", "graphs", "ms", "highrank"]


def test_unknown_columns_are_ignored_and_missing_ones_take_their_default(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("name,count,graphs,extra,highrank,commit,python,torch,machine,started\nx,2,True,9,1,,3,2,m,now\n")
    (row,) = read_rows(path, Sample)
    assert (row.name, row.count, row.graphs, row.ms, row.load) == ("x", 2, True, None, None)


@pytest.mark.parametrize(("column", "value"), [("count", "2.5"), ("ms", "fast"), ("graphs", "1"), ("count", "")])
def test_a_cell_of_the_wrong_type_is_named(tmp_path, column, value):
    table = Table(tmp_path / "a.csv", Sample)
    table.add(sample(**{column: value}))
    with pytest.raises(UserError, match=rf'a.csv, row 1: "{column}"'):
        read_rows(table.path, Sample)


def test_a_missing_column_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("name,graphs\nx,True\n")
    with pytest.raises(UserError, match="highrank"):
        read_rows(path, Sample)


@pytest.mark.parametrize(
    ("pattern", "row_type"),
    [("mos_nll_[ch]*.csv", LossRow), ("mos_nll_scaling_*.csv", ScalingRow), ("lstm_*.csv", LSTMRow),
     ("step_[ch]*0.csv", StepRow), ("step_cpu.csv", StepRow), ("step_h200_again.csv", StepRow)],
)  # fmt: skip
def test_the_committed_results_can_be_read(pattern, row_type):
    files = list(RESULTS.glob(pattern))
    assert files
    for file in files:
        assert all(row.median_ms > 0 for row in read_rows(file, row_type))


def test_the_origin_has_every_column():
    assert origin(torch.device("cpu")).keys() == Row.__dataclass_fields__.keys()


@pytest.mark.parametrize(
    ("name", "file"),
    [("NVIDIA H200", "h200"), ("NVIDIA GeForce RTX 4090", "rtx_4090"), ("Tesla V100-SXM2", "tesla_v100_sxm2")],
)
def test_files_are_named_after_the_machine(monkeypatch, name, file):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert machine_name(torch.device("cuda")) == file

import dataclasses

import pytest
import torch

from highrank.analysis import Analysis, analyze_softmax
from highrank.analysis.kld import Kld
from highrank.analysis.record import (
    SPECTRUM_POINTS,
    AnalysisRecord,
    summarize,
    summarize_softmax,
    thin_spectrum,
)
from highrank.schema import from_json, to_json

RESULT = Analysis(
    tokens=300,
    vocabulary=60,
    rank=8,
    effective_rank=2.5,
    tolerance=1e-13,
    projected=None,
    singular_values=torch.tensor([4.0, 2.0], dtype=torch.float64),
    kld=Kld(1.0, 0.1, 30),
    perplexity=50.0,
    seconds={"rows": 1.0},
    peak_bytes=None,
)


def make_summary(head="mos", **changes):
    result = dataclasses.replace(RESULT, **changes)
    return summarize(result, name="a", head=head, n_components=3, embed_dim=6)


@pytest.mark.parametrize(("head", "bound"), [("softmax", 8), ("moc", 8), ("mos", 60), ("other", 60)])
def test_rank_bound_is_d_plus_2_for_softmax_and_moc(head, bound):
    assert make_summary(head).rank_bound == bound


def test_tokens_limit_the_rank_bound():
    assert make_summary("softmax", tokens=5).rank_bound == make_summary("mos", tokens=5).rank_bound == 5


def test_columns_are_those_of_the_projection():
    assert make_summary().columns == 60
    assert make_summary(projected=20).columns == 20
    assert make_summary(projected=20).round_off is None


def test_round_off_is_relative_to_the_largest_singular_value():
    assert make_summary().round_off == 0.25e-13


def test_a_record_survives_json():
    record = AnalysisRecord(
        corpus="penn", split="test", tokens=300, vocabulary=60, seed=0, models=[make_summary()], provenance={}
    )
    assert from_json(AnalysisRecord, to_json(record)) == record


def test_a_softmax_without_bias_has_rank_bound_d_plus_1_and_describes_its_output_matrix():
    torch.manual_seed(0)
    result = analyze_softmax(torch.randn(300, 7, dtype=torch.float64), torch.randn(60, 7, dtype=torch.float64))
    summary = summarize_softmax(result, "a")
    assert summary.rank_bound == summary.rank == 8
    assert summary.output_matrix.rank == 7
    assert summary.varying.directions_90 == result.directions(0.9) <= summary.varying.directions_99


def test_long_spectra_are_thinned_out():
    values = torch.linspace(9, 1, 5000)
    spectrum = thin_spectrum(values)
    assert len(spectrum.index) <= SPECTRUM_POINTS
    assert (spectrum.index[0], spectrum.index[-1]) == (1, 5000)
    assert spectrum.values == values[torch.tensor(spectrum.index) - 1].tolist()


def test_short_spectra_are_stored_whole():
    assert thin_spectrum(torch.linspace(9, 1, 7)).index == [1, 2, 3, 4, 5, 6, 7]

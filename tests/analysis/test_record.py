from dataclasses import replace

import pytest
import torch

from highrank.analysis.kld import Kld
from highrank.analysis.record import SPECTRUM_POINTS, Analysis, Spectrum, full_spectrum, thin_spectrum


def make_analysis():
    return Analysis(
        rank_bound=8, rank=8, effective_rank=2.5, tolerance=1e-13,
        spectrum=Spectrum([4.0, 2.0], [1, 2]), kld=Kld(1.0, 0.1, 30), perplexity=50.0, seconds={"rows": 1.0},
        peak_bytes=None,
    )  # fmt: skip


def test_round_off_is_relative_to_the_largest_singular_value():
    assert make_analysis().round_off == 0.25e-13


@pytest.mark.parametrize("n", [7, SPECTRUM_POINTS])
def test_short_spectra_are_stored_whole(n):
    spectrum = full_spectrum(torch.linspace(9, 1, n))
    assert thin_spectrum(spectrum) == spectrum
    assert spectrum.index == list(range(1, n + 1))


def test_long_spectra_are_thinned_out():
    values = torch.linspace(9, 1, 5000)
    spectrum = thin_spectrum(full_spectrum(values))
    assert len(spectrum.index) <= SPECTRUM_POINTS
    assert (spectrum.index[0], spectrum.index[-1]) == (1, 5000)
    assert spectrum.values == values[torch.tensor(spectrum.index) - 1].tolist()


@pytest.mark.parametrize("stored", [lambda spectrum: spectrum, thin_spectrum])
def test_singular_values_above_a_threshold_are_counted(stored):
    spectrum = stored(full_spectrum(torch.logspace(3, -3, 6001, dtype=torch.float64)))
    assert spectrum.count_above(0.1) == pytest.approx(4000, abs=1)
    assert (spectrum.count_above(2000), spectrum.count_above(1e-4)) == (0, 6001)


def test_the_float32_rank_counts_above_a_tolerance_of_float32():
    spectrum = full_spectrum(torch.tensor([1e3, 1.0, 1e-4, 1e-9, 1e-13], dtype=torch.float64))
    analysis = replace(make_analysis(), spectrum=spectrum, tolerance=1e-12)  # in float32: 1e-12 * 2^29 = 5.4e-4
    assert analysis.float32_rank == 2

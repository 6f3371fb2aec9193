import math

import pytest
import torch

from helpers import CPU
from highrank.analysis.projection import Projection, top_of_spectrum
from highrank.analysis.rank import numerical_rank, press_tolerance, singular_values
from highrank.errors import UserError


def with_spectrum(values, rows):
    """Return a (rows, V) matrix with these V singular values."""
    left = torch.linalg.qr(torch.randn(rows, len(values), dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64)).Q
    return (left * values) @ right.T


def falling(power, n=600):
    """Return a spectrum like that of log-probabilities: one large value, then a power law."""
    i = torch.arange(1, n, dtype=torch.float64)
    return torch.cat([torch.tensor([3000.0], dtype=torch.float64), 100 * i**-power])


def project(a, size, seed):
    projection = Projection(a.shape[1], size, seed, CPU)
    return projection, singular_values(torch.cat([projection.apply(block) for block in a.split(100)]))


@pytest.mark.parametrize("power", [0.5, 0.7, 1.0, 1.5])
def test_top_of_the_spectrum_is_within_its_stated_error(power):
    truth = falling(power)
    size = 200
    repeats = 10
    a = with_spectrum(truth, 700)
    estimates = [top_of_spectrum(project(a, size, seed)[1]) for seed in range(repeats)]
    resolved = min(map(len, estimates))
    assert resolved >= 5
    relative = torch.stack([f[:resolved] for f in estimates]) / truth[:resolved] - 1
    assert relative.std(0).max().item() < 2 / math.sqrt(2 * size)
    assert relative.mean(0).abs().max().item() < 0.05 + 3 / math.sqrt(2 * size * repeats)


def test_sum_of_squares_is_unbiased():
    a = with_spectrum(falling(0.7, 120), 150)
    totals = torch.stack([project(a, 30, seed)[1].square().sum() for seed in range(200)])
    error = totals.std().item() / math.sqrt(len(totals))
    assert totals.mean().item() == pytest.approx(a.square().sum().item(), abs=4 * error)


@pytest.mark.parametrize(("rank", "size"), [(5, 60), (59, 60), (90, 60)])
def test_rank_is_a_lower_bound(rank, size):
    values = torch.zeros(150, dtype=torch.float64)
    values[:rank] = torch.logspace(3, 0, rank, dtype=torch.float64)
    a = with_spectrum(values, 400)
    projection, projected = project(a, size, seed=3)
    assert int((projected > projection.tolerance(400)).sum()) == min(rank, size)
    # Noise below A's own tolerance does not count.
    tolerance = press_tolerance(1000, *a.shape)
    noisy = a + 0.01 * tolerance * torch.randn_like(a)
    projection, projected = project(noisy, size, seed=3)
    assert int((projected > projection.tolerance(400)).sum()) <= numerical_rank(singular_values(noisy), *a.shape)


def test_norm_of_the_projection_is_below_its_bound():
    for seed in range(5):
        projection = Projection(300, 50, seed, CPU)
        bound = (math.sqrt(300) + math.sqrt(50) + 6) / math.sqrt(50)
        assert torch.linalg.matrix_norm(projection.matrix, 2).item() < bound


def test_tolerance_is_that_of_all_projected_rows():
    a = torch.randn(90, 30, dtype=torch.float64)
    projection = Projection(30, 5, 0, CPU)
    for block in a.split(40):
        projection.apply(block)
    bound = (math.sqrt(30) + math.sqrt(5) + 6) / math.sqrt(5)
    assert projection.tolerance(90) == pytest.approx(bound * press_tolerance(a.norm().item(), 90, 30), rel=1e-9, abs=0)


def test_correction_is_the_formula_of_the_docstring():
    """With eight columns: subtract the tail from each square, then divide by the share of free directions."""
    estimates = top_of_spectrum(torch.tensor([4.0, 2, 1, 0, 0, 0, 0, 0], dtype=torch.float64))
    assert estimates.square().tolist() == pytest.approx([16 - 5 / 8, (4 - 1 / 8) / (7 / 8), 1 / (6 / 8)])
    falling = top_of_spectrum(torch.tensor([3.0, 3, 0, 0, 0, 0, 0, 0], dtype=torch.float64))
    assert falling[:2].square().tolist() == pytest.approx([9 / (7 / 8), 9 - 9 / 8])


def test_matrix_depends_on_the_seed_only():
    assert torch.equal(Projection(20, 5, 1, CPU).matrix, Projection(20, 5, 1, CPU).matrix)
    assert not torch.equal(Projection(20, 5, 1, CPU).matrix, Projection(20, 5, 2, CPU).matrix)


@pytest.mark.parametrize("size", [0, 20])
def test_projection_needs_fewer_columns_than_the_matrix(size):
    with pytest.raises(UserError):
        Projection(20, size, 1, CPU)

import pytest
import torch

from highrank.analysis.qr import ATTEMPTS, r_factor, reduced_qr


def spoil_qr(monkeypatch, n_wrong, spoil):
    """Make the first `n_wrong` factorisations return R after `spoil`."""
    right = torch.linalg.qr
    calls = []

    def qr(matrix, mode="reduced"):
        calls.append(mode)
        q, r = right(matrix, mode=mode)
        return torch.return_types.linalg_qr((q, spoil(r) if len(calls) <= n_wrong else r))

    monkeypatch.setattr(torch.linalg, "qr", qr)
    return calls


@pytest.mark.parametrize("shape", [(40, 7), (7, 7), (5, 9)])
def test_the_factors_are_those_of_torch(shape):
    matrix = torch.randn(shape, dtype=torch.float64)
    q, r = torch.linalg.qr(matrix)
    assert torch.equal(r_factor(matrix), r)
    assert all(map(torch.equal, reduced_qr(matrix), (q, r)))


@pytest.mark.parametrize("spoil", [lambda r: r * torch.nan, lambda r: r + 1e-4])
@pytest.mark.parametrize("factor", [r_factor, lambda matrix: reduced_qr(matrix)[1]])
def test_a_wrong_result_is_computed_again(factor, spoil, monkeypatch):
    matrix = torch.randn(40, 7, dtype=torch.float64)
    right = torch.linalg.qr(matrix).R
    calls = spoil_qr(monkeypatch, 1, spoil)
    assert torch.equal(factor(matrix), right)
    assert len(calls) == 2


@pytest.mark.parametrize("factor", [r_factor, reduced_qr])
def test_results_that_stay_wrong_are_an_error(factor, monkeypatch):
    spoil_qr(monkeypatch, ATTEMPTS, lambda r: 2 * r)
    with pytest.raises(ArithmeticError):
        factor(torch.randn(40, 7, dtype=torch.float64))


@pytest.mark.parametrize("factor", [r_factor, reduced_qr])
def test_a_matrix_that_is_not_finite_is_an_error(factor):
    with pytest.raises(ArithmeticError, match="finite"):
        factor(torch.full((4, 2), torch.nan, dtype=torch.float64))


@pytest.mark.parametrize("factor", [r_factor, reduced_qr])
def test_a_matrix_of_zeros_has_factors(factor):
    factor(torch.zeros(4, 2, dtype=torch.float64))

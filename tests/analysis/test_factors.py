import pytest
import torch

from highrank.analysis import factors
from highrank.errors import UserError

FUNCTIONS = {"reduced_qr": "qr", "r_factor": "qr", "svd": "svd", "svdvals": "svdvals"}


def spoil_first(monkeypatch, name, n_wrong, spoil):
    """Make the first `n_wrong` calls of torch.linalg.`name` return one wrong factor; return the list of all calls."""
    right = getattr(torch.linalg, name)
    calls = []

    def wrong(*arguments, **options):
        result = right(*arguments, **options)
        calls.append(name)
        if len(calls) > n_wrong:
            return result
        return spoil(result) if name == "svdvals" else type(result)((*result[:1], spoil(result[1]), *result[2:]))

    monkeypatch.setattr(torch.linalg, name, wrong)
    return calls


def as_list(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


@pytest.mark.parametrize("shape", [(40, 7), (7, 7), (5, 9)])
def test_the_factors_are_those_of_torch(shape):
    a = torch.randn(shape, dtype=torch.float64)
    q, r = torch.linalg.qr(a)
    assert all(map(torch.equal, factors.reduced_qr(a), (q, r)))
    assert torch.equal(factors.r_factor(a), r)
    assert all(map(torch.equal, factors.svd(a), torch.linalg.svd(a)))
    assert torch.equal(factors.svdvals(a), torch.linalg.svdvals(a))


@pytest.mark.parametrize("spoil", [lambda factor: factor * torch.nan, lambda factor: factor + 1e-4])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_result_is_computed_again(name, spoil, monkeypatch):
    a = torch.randn(40, 7, dtype=torch.float64)
    right = as_list(getattr(factors, name)(a))
    calls = spoil_first(monkeypatch, FUNCTIONS[name], 1, spoil)
    assert all(map(torch.equal, as_list(getattr(factors, name)(a)), right))
    assert len(calls) == 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_that_stay_wrong_are_an_error(name, monkeypatch):
    spoil_first(monkeypatch, FUNCTIONS[name], factors.ATTEMPTS, lambda factor: 2 * factor)
    with pytest.raises(ArithmeticError):
        getattr(factors, name)(torch.randn(40, 7, dtype=torch.float64))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_matrix_that_is_not_finite_is_a_mistake_of_the_user(name):
    with pytest.raises(UserError):
        getattr(factors, name)(torch.full((4, 2), torch.nan, dtype=torch.float64))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_matrix_of_zeros_has_factors(name):
    getattr(factors, name)(torch.zeros(4, 2, dtype=torch.float64))

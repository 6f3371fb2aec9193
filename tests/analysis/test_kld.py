import pytest
import torch

from highrank.analysis.kld import pairwise_kld, sample_contexts


def distributions(n, words=30, spread=2.0):
    return torch.log_softmax(spread * torch.randn(n, words, dtype=torch.float64), dim=-1)


def slowly(log_p):
    """KL of every ordered pair of different contexts, one at a time."""
    n = len(log_p)
    pairs = [
        torch.nn.functional.kl_div(log_p[j], log_p[i], log_target=True, reduction="sum")
        for i in range(n)
        for j in range(n)
        if i != j
    ]
    return torch.stack(pairs).mean().item()


@pytest.mark.parametrize("block", [1, 4, 100])
def test_the_mean_is_that_of_all_pairs(block):
    log_p = distributions(9)
    assert pairwise_kld(log_p, block=block).mean == pytest.approx(slowly(log_p), rel=1e-12)


def test_the_jackknife_is_leaving_each_context_out():
    log_p = distributions(9)
    left_out = torch.tensor([slowly(torch.cat([log_p[:i], log_p[i + 1 :]])) for i in range(9)], dtype=torch.float64)
    expected = (8 / 9 * (left_out - left_out.mean()).square().sum()).sqrt().item()
    assert pairwise_kld(log_p).standard_error == pytest.approx(expected, rel=1e-9)
    assert pairwise_kld(log_p, population=12).standard_error == pytest.approx(expected * 0.5, rel=1e-9)
    assert pairwise_kld(log_p, population=9).standard_error == 0


def test_unbiased_and_the_standard_error_is_the_spread_of_repeated_samples():
    """Contexts of unequal spread, so that pairs depend on the contexts they share."""
    population = torch.cat([distributions(150, spread=0.5), distributions(150, spread=3.0)])
    truth = pairwise_kld(population).mean
    found = [pairwise_kld(population[sample_contexts(300, 40, seed)], population=300) for seed in range(400)]
    means = torch.tensor([f.mean for f in found], dtype=torch.float64)
    errors = torch.tensor([f.standard_error for f in found], dtype=torch.float64)
    assert abs(means.mean().item() - truth) < 4 * means.std().item() / 20  # four standard errors of a mean of 400
    assert errors.mean().item() == pytest.approx(means.std().item(), rel=0.15)
    naive = 0.5 * means.std().item()  # pairs taken as independent would give far less: the test can tell them apart
    assert errors.min().item() > naive


def test_sampled_contexts():
    positions = sample_contexts(100, 30, seed=1)
    assert torch.equal(positions, sample_contexts(100, 30, seed=1))
    assert not torch.equal(positions, sample_contexts(100, 30, seed=2))
    assert len(positions.unique()) == 30
    assert torch.equal(positions, positions.sort().values)
    assert torch.equal(sample_contexts(5, 30, seed=1), torch.arange(5))


def test_wrong_input():
    with pytest.raises(ValueError, match="at least 3 contexts"):
        pairwise_kld(distributions(2))
    log_p = distributions(5)
    log_p[2, 3] = -torch.inf
    with pytest.raises(ValueError, match="not finite"):
        pairwise_kld(log_p)

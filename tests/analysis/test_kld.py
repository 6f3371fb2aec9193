import pytest
import torch

from highrank.analysis.kld import pairwise_kld, sample_contexts


def distributions(n, words=30, spread=2.0):
    return torch.log_softmax(spread * torch.randn(n, words, dtype=torch.float64), dim=-1)


def mean_of_pairs(log_p):
    """Average the KL of every ordered pair of different contexts, one at a time."""
    n = len(log_p)
    pairs = [
        torch.nn.functional.kl_div(log_p[j], log_p[i], log_target=True, reduction="sum")
        for i in range(n)
        for j in range(n)
        if i != j
    ]
    return torch.stack(pairs).mean().item()


@pytest.mark.parametrize("block", [1, 4, 100])
def test_mean_is_the_average_over_all_pairs(block):
    log_p = distributions(9)
    assert pairwise_kld(log_p, block=block).mean == pytest.approx(mean_of_pairs(log_p), rel=1e-12)


def test_standard_error_is_the_jackknife_over_contexts():
    log_p = distributions(9)
    left_out = torch.tensor(
        [mean_of_pairs(torch.cat([log_p[:i], log_p[i + 1 :]])) for i in range(9)], dtype=torch.float64
    )
    expected = (8 / 9 * (left_out - left_out.mean()).square().sum()).sqrt().item()
    assert pairwise_kld(log_p).standard_error == pytest.approx(expected, rel=1e-9)
    assert pairwise_kld(log_p, population=12).standard_error == pytest.approx(expected * 0.5, rel=1e-9)
    assert pairwise_kld(log_p, population=9).standard_error == 0


def test_estimate_is_unbiased_and_its_standard_error_is_the_spread_of_repeated_samples():
    """The contexts differ in spread, so that pairs that share a context are correlated."""
    population = torch.cat([distributions(150, spread=0.5), distributions(150, spread=3.0)])
    truth = pairwise_kld(population).mean
    estimates = [pairwise_kld(population[sample_contexts(300, 40, seed)], population=300) for seed in range(400)]
    means = torch.tensor([f.mean for f in estimates], dtype=torch.float64)
    errors = torch.tensor([f.standard_error for f in estimates], dtype=torch.float64)
    assert abs(means.mean().item() - truth) < 4 * means.std().item() / 20  # four standard errors of a mean of 400
    assert errors.mean().item() == pytest.approx(means.std().item(), rel=0.15)
    naive = 0.5 * means.std().item()  # an error that treats pairs as independent lies below this
    assert errors.min().item() > naive


def test_sampled_contexts_are_distinct_sorted_and_depend_on_the_seed():
    positions = sample_contexts(100, 30, seed=1)
    assert torch.equal(positions, sample_contexts(100, 30, seed=1))
    assert not torch.equal(positions, sample_contexts(100, 30, seed=2))
    assert len(positions.unique()) == 30
    assert torch.equal(positions, positions.sort().values)


def test_two_contexts_raise():
    with pytest.raises(ValueError):
        pairwise_kld(distributions(2))


def test_infinite_log_probabilities_raise():
    log_p = distributions(5)
    log_p[2, 3] = -torch.inf
    with pytest.raises(ValueError):
        pairwise_kld(log_p)

import pytest
import torch

from highrank.analysis.gradient import gradient_share, random_share, reach, summarize_shares
from highrank.analysis.output_layer import column_basis

T, K, D, V = 5, 3, 4, 60


def make_mixture(components=K, dim=D):
    weight = torch.randn(V, dim, dtype=torch.float64)
    bias = torch.randn(V, dtype=torch.float64)
    log_pi = torch.randn(T, components, dtype=torch.float64).log_softmax(1)
    h = torch.randn(T, components, dim, dtype=torch.float64)
    return weight, bias, log_pi, h, torch.randint(V, (T,))


def mixture_nll(logits, log_pi, target):  # logits (K, V), log_pi (K,)
    return -torch.logsumexp(log_pi + torch.log_softmax(logits, -1)[:, target], 0)


def project(columns, vector):
    """Project a vector onto the space of columns, by least squares."""
    return columns @ torch.linalg.lstsq(columns, vector[:, None], driver="gelsd").solution[:, 0]


@pytest.mark.parametrize("components", [1, K])
def test_shares_equal_those_of_the_gradient_that_autograd_computes(components):
    weight, bias, log_pi, h, targets = make_mixture(components)
    shares = gradient_share(column_basis(weight), weight, bias, log_pi, h, targets)
    for t in range(T):
        logits = (h[t] @ weight.T + bias).requires_grad_()
        (d,) = torch.autograd.grad(mixture_nll(logits, log_pi[t], targets[t]), logits)  # (K, V)
        kept = torch.stack([project(weight, row) for row in d])
        torch.testing.assert_close(shares[t], kept.norm() / d.norm())


def test_reach_is_the_share_in_the_space_of_the_jacobian():
    weight, bias, log_pi, h, targets = make_mixture()
    reached = reach(weight, bias, log_pi, h, targets)

    def log_p(h, log_pi):
        joint = log_pi.log_softmax(0)[:, None] + torch.log_softmax(h @ weight.T + bias, -1)
        return joint.logsumexp(0)

    for t in range(T):
        with_h, with_pi = torch.autograd.functional.jacobian(log_p, (h[t], log_pi[t]))
        constant = torch.ones(V, 1, dtype=torch.float64)  # added to all logits, it changes no probability
        columns = torch.cat([with_h.flatten(1), with_pi, constant], dim=1)
        d = log_p(h[t], log_pi[t]).exp()
        d[targets[t]] -= 1
        torch.testing.assert_close(reached[t], project(columns, d).norm() / d.norm(), rtol=1e-6, atol=1e-6)


def test_equal_components_reach_no_more_than_one():
    weight, bias, _, h, targets = make_mixture()
    equal = h[:, :1].expand(-1, K, -1)
    log_pi = torch.full((T, K), 1 / K, dtype=torch.float64).log()
    one = reach(weight, bias, torch.zeros(T, 1, dtype=torch.float64), h[:, :1], targets)
    torch.testing.assert_close(reach(weight, bias, log_pi, equal, targets), one)


def test_the_basis_has_the_rank_of_the_matrix():
    weight = torch.randn(V, D, dtype=torch.float64)
    weight[:, 0] = weight[:, 1]
    basis = column_basis(weight)
    assert basis.shape == (V, D - 1)
    torch.testing.assert_close(basis @ (basis.T @ weight), weight)


def test_random_directions_have_the_random_share():
    basis = column_basis(torch.randn(400, 64, dtype=torch.float64))
    d = torch.randn(400, 2000, dtype=torch.float64)
    shares = (basis.T @ d).norm(dim=0) / d.norm(dim=0)
    assert summarize_shares(shares, 0).mean == pytest.approx(random_share(64, 400), abs=2e-3)


def test_a_summary_has_quantiles_from_the_least_to_the_most():
    summary = summarize_shares(torch.arange(101, dtype=torch.float64), 0.5)
    assert summary.quantiles == list(range(0, 101, 5))
    assert (summary.tokens, summary.mean, summary.random) == (101, 50, 0.5)

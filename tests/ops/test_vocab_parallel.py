"""The loss with a divided vocabulary equals that with a whole one, in float64."""

import pytest
import torch

from highrank.ops.mos_nll import mos_nll
from highrank.ops.mos_nll.vocab_parallel import vocab_parallel_mos_nll
from ranks import in_ranks

N, K, D, V = 7, 3, 5, 23


def gradients(loss, inputs, upstream):
    """Return the loss and its gradients, with another upstream gradient for every token."""
    inputs = [x.requires_grad_() for x in inputs if x is not None]
    nll = loss()
    (nll * upstream).sum().backward()
    return nll.detach(), [x.grad for x in inputs]


def divided(ranks, h, log_pi, weight, bias, targets, upstream):
    words = ranks.columns(V)  # 11 and 12, or 7, 8 and 8 words
    weight = weight[words].clone()
    bias = None if bias is None else bias[words].clone()

    def loss():
        return vocab_parallel_mos_nll(h, log_pi, weight, bias, targets, words.start)

    return gradients(loss, [h, log_pi, weight, bias], upstream)


def test_half_precision_gradients_are_exact_to_round_off(tmp_path):
    """A target of another rank contributes two gradients that cancel: they must not leave round-off behind."""
    tokens = 500
    half = torch.bfloat16
    h = torch.randn(tokens, K, D).to(half)
    log_pi = torch.randn(tokens, K).log_softmax(-1)
    weight = torch.randn(V, D).to(half)
    bias = torch.randn(V).to(half)
    targets = torch.randint(V, (tokens,))
    upstream = torch.ones(tokens)
    ranks = in_ranks(2, tmp_path, divided, h, log_pi, weight, bias, targets, upstream)
    exact = [x.double() for x in (h, log_pi, weight, bias)]
    _, (_, _, *expected) = gradients(lambda: mos_nll(*exact, targets), exact, upstream)
    for i, true in enumerate(expected, start=2):
        found = torch.cat([grads[i] for _, grads in ranks]).double()
        assert (found - true).abs().max() < 2**-8 * true.abs().max()


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("size", [2, 3])
def test_a_divided_vocabulary_gives_the_same_loss_and_gradients(tmp_path, size, has_bias):
    h = torch.randn(N, K, D, dtype=torch.float64) * 3
    log_pi = torch.randn(N, K, dtype=torch.float64).log_softmax(-1)
    weight = torch.randn(V, D, dtype=torch.float64) * 3
    bias = 1000 + torch.randn(V, dtype=torch.float64) if has_bias else None  # exp(1000) is infinite
    targets = torch.tensor([0, V - 1, *torch.randint(V, (N - 2,)).tolist()])
    upstream = torch.randn(N, dtype=torch.float64)
    ranks = in_ranks(size, tmp_path, divided, h, log_pi, weight, bias, targets, upstream)
    inputs = [h, log_pi, weight, bias]
    nll, (h_grad, pi_grad, *rest) = gradients(lambda: mos_nll(*inputs, targets), inputs, upstream)
    for own, grads in ranks:
        assert torch.allclose(own, nll, rtol=1e-12)
        assert torch.allclose(grads[0], h_grad, rtol=1e-10, atol=1e-13)
        assert torch.allclose(grads[1], pi_grad, rtol=1e-10, atol=1e-13)
    for i, expected in enumerate(rest, start=2):
        assert torch.allclose(torch.cat([grads[i] for _, grads in ranks]), expected, rtol=1e-10, atol=1e-13)

import pytest
import torch

from highrank.analysis import analyze, analyze_softmax

T, D, V = 300, 7, 60


def make_parts(bias=True, dtype=torch.float64):
    scale = torch.logspace(0, -2, D)
    h = torch.randn(T, D) * scale + 1
    w = torch.randn(V, D)
    return h.to(dtype), w.to(dtype), torch.randn(V).to(dtype) if bias else None


def values(spectrum):
    return torch.tensor(spectrum.values, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_factors_give_the_same_spectrum_rank_and_kld_as_the_rows(bias):
    h, w, b = make_parts(bias)
    rows = torch.log_softmax(torch.nn.functional.linear(h, w, b), -1)
    position = iter(rows.split(37))
    other = analyze(lambda words: next(position), torch.zeros(T, dtype=torch.long), contexts=50, window=37)
    result = analyze_softmax(h, w, b, contexts=50)
    n = D + (2 if bias else 1)
    assert result.rank_bound == result.rank == other.rank == n
    torch.testing.assert_close(values(result.spectrum)[:n], values(other.spectrum)[:n], rtol=1e-9, atol=1e-9)
    assert result.kld.mean == pytest.approx(other.kld.mean, rel=1e-9)
    assert result.tolerance == pytest.approx(other.tolerance, rel=1e-9, abs=0)
    centred = torch.linalg.svdvals(rows - rows.mean(0))[: D + 1]
    torch.testing.assert_close(values(result.varying.spectrum), centred, rtol=1e-9, atol=1e-9)


def test_perplexity_needs_the_ids():
    h, w, b = make_parts()
    ids = torch.randint(V, (T,))
    nll = torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, w, b)[:-1], ids[1:])
    assert analyze_softmax(h, w, b, ids=ids).perplexity == pytest.approx(nll.exp().item(), rel=1e-9)
    assert analyze_softmax(h, w, b).perplexity is None


def test_fewer_tokens_than_directions():
    h, w, b = make_parts()
    few = analyze_softmax(h[:4], w, b)
    assert few.rank_bound == few.rank == 4
    expected = torch.linalg.svdvals(torch.log_softmax(h[:4] @ w.T + b, -1))
    torch.testing.assert_close(values(few.spectrum), expected, rtol=1e-9, atol=1e-9)


def test_two_tokens_are_enough():
    h, w, b = make_parts()
    assert analyze_softmax(h[:2], w, b).rank == 2


def test_lower_precision_is_cast_to_float64():
    h, w, b = make_parts(dtype=torch.bfloat16)
    assert analyze_softmax(h, w, b).rank == D + 2


def test_directions_hold_the_share_of_the_variance():
    h, w, _ = make_parts(bias=False)
    varying = analyze_softmax(h, w).varying
    energy = values(varying.spectrum).square()
    for share, k in ((0.9, varying.directions_90), (0.99, varying.directions_99)):
        assert energy[:k].sum() >= share * energy.sum() > energy[: k - 1].sum()


def test_wrong_hidden_states_raise():
    h, w, b = make_parts()
    for wrong in (h[:0], h[:1], h[:, :5], h[0]):
        with pytest.raises(ValueError):
            analyze_softmax(wrong, w, b)


def test_fewer_words_than_directions():
    """As for a model of characters, which has no bottleneck."""
    h, w, b = make_parts()
    w = w[:5]
    b = b[:5]
    result = analyze_softmax(h, w, b)
    rows = torch.log_softmax(h @ w.T + b, -1)
    assert result.rank_bound == result.rank == 5
    torch.testing.assert_close(values(result.spectrum), torch.linalg.svdvals(rows), rtol=1e-9, atol=1e-9)
    centred = torch.linalg.svdvals(rows - rows.mean(0))
    torch.testing.assert_close(values(result.varying.spectrum)[:5], centred, rtol=1e-9, atol=1e-9)

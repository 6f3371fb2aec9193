import pytest
import torch

from highrank.analysis import analyze, analyze_softmax

T, D, V = 300, 7, 60


def make_parts(bias=True, dtype=torch.float64):
    scale = torch.logspace(0, -2, D)
    h = torch.randn(T, D) * scale + 1
    w = torch.randn(V, D)
    return h.to(dtype), w.to(dtype), torch.randn(V).to(dtype) if bias else None


@pytest.mark.parametrize("bias", [True, False])
def test_factors_give_the_same_spectrum_rank_and_kld_as_the_rows(bias):
    h, w, b = make_parts(bias)
    rows = torch.log_softmax(torch.nn.functional.linear(h, w, b), -1)
    position = iter(rows.split(37))
    other = analyze(lambda words: next(position), torch.zeros(T, dtype=torch.long), contexts=50, window=37)
    result = analyze_softmax(h, w, b, contexts=50)
    n = D + (2 if bias else 1)
    assert result.rank_bound == result.analysis.rank == other.rank == n
    torch.testing.assert_close(result.analysis.singular_values[:n], other.singular_values[:n], rtol=1e-9, atol=1e-9)
    assert result.analysis.kld.mean == pytest.approx(other.kld.mean, rel=1e-9)
    assert result.analysis.tolerance == pytest.approx(other.tolerance, rel=1e-9, abs=0)
    torch.testing.assert_close(result.output_values, torch.linalg.svdvals(w))
    centred = torch.linalg.svdvals(rows - rows.mean(0))[: D + 1]
    torch.testing.assert_close(result.varying_values, centred, rtol=1e-9, atol=1e-9)


def test_blocks_give_the_same_as_the_whole():
    h, w, b = make_parts()
    whole = analyze_softmax(h, w, b)
    blocks = analyze_softmax(iter(h.split(90)), w, b, tokens=T)
    torch.testing.assert_close(blocks.analysis.singular_values, whole.analysis.singular_values)


def test_perplexity_needs_the_ids():
    h, w, b = make_parts()
    ids = torch.randint(V, (T,))
    nll = torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, w, b)[:-1], ids[1:])
    assert analyze_softmax(h, w, b, ids=ids).analysis.perplexity == pytest.approx(nll.exp().item(), rel=1e-9)
    assert analyze_softmax(h, w, b).analysis.perplexity is None


def test_fewer_tokens_than_directions():
    h, w, b = make_parts()
    few = analyze_softmax(h[:4], w, b)
    assert few.rank_bound == few.analysis.rank == 4
    expected = torch.linalg.svdvals(torch.log_softmax(h[:4] @ w.T + b, -1))
    torch.testing.assert_close(few.analysis.singular_values, expected, rtol=1e-9, atol=1e-9)


def test_lower_precision_is_cast_to_float64():
    h, w, b = make_parts(dtype=torch.bfloat16)
    assert analyze_softmax(h, w, b).analysis.rank == D + 2


def test_directions_hold_the_share_of_the_variance():
    h, w, _ = make_parts(bias=False)
    result = analyze_softmax(h, w)
    energy = result.varying_values.square()
    k = result.directions(0.9)
    assert energy[:k].sum() >= 0.9 * energy.sum() > energy[: k - 1].sum()
    assert result.directions(1.0) <= D + 1


def test_wrong_hidden_states_raise():
    h, w, b = make_parts()
    with pytest.raises(ValueError):
        analyze_softmax(h[:0], w, b)
    with pytest.raises(ValueError):
        analyze_softmax(h[:, :5], w, b)
    with pytest.raises(ValueError):
        analyze_softmax([h], w, b, tokens=T + 1)


def test_fewer_words_than_directions():
    """As for a model of characters, which has no bottleneck."""
    h, w, b = make_parts()
    w = w[:5]
    b = b[:5]
    result = analyze_softmax(h, w, b)
    rows = torch.log_softmax(h @ w.T + b, -1)
    assert result.rank_bound == result.analysis.rank == 5
    torch.testing.assert_close(result.analysis.singular_values, torch.linalg.svdvals(rows), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(result.output_values, torch.linalg.svdvals(w))
    centred = torch.linalg.svdvals(rows - rows.mean(0))
    torch.testing.assert_close(result.varying_values[:5], centred, rtol=1e-9, atol=1e-9)

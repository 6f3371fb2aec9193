import pytest
import torch

from highrank.analysis import analyze, analyze_softmax

T, D, V = 300, 7, 60


def parts(bias=True, dtype=torch.float64):
    scale = torch.logspace(0, -2, D)
    h, w = torch.randn(T, D) * scale + 1, torch.randn(V, D)
    return h.to(dtype), w.to(dtype), torch.randn(V).to(dtype) if bias else None


@pytest.mark.parametrize("bias", [True, False])
def test_the_same_spectrum_rank_and_kld_as_from_the_rows(bias):
    h, w, b = parts(bias)
    rows = torch.log_softmax(torch.nn.functional.linear(h, w, b), -1)
    position = iter(rows.split(37))
    other = analyze(lambda words: next(position), torch.zeros(T, dtype=torch.long), contexts=50, window=37)
    found = analyze_softmax(h, w, b, contexts=50)
    n = D + (2 if bias else 1)
    assert found.rank_bound == found.analysis.rank == other.rank == n
    torch.testing.assert_close(found.analysis.singular_values[:n], other.singular_values[:n], rtol=1e-9, atol=1e-9)
    assert found.analysis.kld.mean == pytest.approx(other.kld.mean, rel=1e-9)
    assert found.analysis.tolerance == pytest.approx(other.tolerance, rel=1e-9, abs=0)
    torch.testing.assert_close(found.output_values, torch.linalg.svdvals(w))
    centred = torch.linalg.svdvals(rows - rows.mean(0))[: D + 1]
    torch.testing.assert_close(found.varying_values, centred, rtol=1e-9, atol=1e-9)


def test_blocks_ids_and_fewer_tokens_than_directions():
    h, w, b = parts()
    ids = torch.randint(V, (T,))
    whole = analyze_softmax(h, w, b, ids=ids)
    blocks = analyze_softmax(iter(h.split(90)), w, b, tokens=T, ids=ids)
    torch.testing.assert_close(blocks.analysis.singular_values, whole.analysis.singular_values)
    nll = torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, w, b)[:-1], ids[1:])
    assert blocks.analysis.perplexity == pytest.approx(nll.exp().item(), rel=1e-9)
    assert analyze_softmax(h, w, b).analysis.perplexity is None
    few = analyze_softmax(h[:4], w, b)
    assert few.rank_bound == few.analysis.rank == 4
    torch.testing.assert_close(
        few.analysis.singular_values, torch.linalg.svdvals(torch.log_softmax(h[:4] @ w.T + b, -1)), rtol=1e-9, atol=1e-9
    )


def test_lower_precision_is_cast_up():
    h, w, b = parts(dtype=torch.bfloat16)
    assert analyze_softmax(h, w, b).analysis.rank == D + 2


def test_directions():
    h, w, _ = parts(bias=False)
    found = analyze_softmax(h, w)
    energy = found.varying_values.square()
    k = found.directions(0.9)
    assert energy[:k].sum() >= 0.9 * energy.sum() > energy[: k - 1].sum()
    assert found.directions(1.0) <= D + 1


def test_wrong_input():
    h, w, b = parts()
    with pytest.raises(ValueError, match="no hidden states"):
        analyze_softmax(h[:0], w, b)
    with pytest.raises(ValueError, match=r"must be \(t, 7\)"):
        analyze_softmax(h[:, :5], w, b)
    with pytest.raises(ValueError, match="301 hidden states were announced and 300 came"):
        analyze_softmax([h], w, b, tokens=301)


def test_fewer_words_than_directions():
    """As at character level: the bottleneck is none."""
    h, w, b = parts()
    w, b = w[:5], b[:5]
    found = analyze_softmax(h, w, b)
    rows = torch.log_softmax(h @ w.T + b, -1)
    assert found.rank_bound == found.analysis.rank == 5
    torch.testing.assert_close(found.analysis.singular_values, torch.linalg.svdvals(rows), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.output_values, torch.linalg.svdvals(w))
    centred = torch.linalg.svdvals(rows - rows.mean(0))
    torch.testing.assert_close(found.varying_values[:5], centred, rtol=1e-9, atol=1e-9)

import math
import re
from pathlib import Path

import pytest
import torch

from helpers import CPU
from highrank import memory
from highrank.analysis import analyze, carrying_state
from highrank.analysis.kld import pairwise_kld, sample_contexts
from highrank.analysis.matrix import CONTEXTS, WINDOW, check_memory, context_count, default_rows, needed_bytes
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes import ModelSpec


def make_model(head="mos", vocab_size=60):
    spec = ModelSpec(head=head, embed_dim=6, hidden_sizes=(10, 6), n_components=4)
    model = build_model(spec, vocab_size).double().eval()
    for p in model.parameters():
        p.data.mul_(4)
    torch.nn.init.normal_(model.head.bias)  # it starts at zero, where it adds no rank
    return model


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
@pytest.mark.parametrize("window", [300, 64, 7])
def test_results_are_those_of_the_whole_matrix_for_any_window(head, window):
    model = make_model(head)
    ids = torch.randint(60, (300,))
    whole, _ = model.log_prob(ids[:, None], model.initial_state(1))
    whole = whole[:, 0].detach()
    result = analyze(carrying_state(model), ids, contexts=40, seed=5, window=window)
    assert result.rank_bound == 60
    assert result.spectrum.values == pytest.approx(torch.linalg.svdvals(whole).tolist(), rel=1e-8, abs=1e-9)
    assert result.rank > 20 if head == "mos" else result.rank == 6 + 2
    expected = pairwise_kld(whole[sample_contexts(300, 40, 5)], 300)
    assert result.kld.mean == pytest.approx(expected.mean, rel=1e-9)
    assert result.kld.standard_error == pytest.approx(expected.standard_error, rel=1e-6)
    assert result.perplexity == pytest.approx(evaluate(model, ids).perplexity, rel=1e-5)
    assert set(result.seconds) == {"rows", "svd", "kld"}


def test_fewer_tokens_than_words_limit_the_rank():
    model = make_model()
    ids = torch.randint(60, (25,))
    result = analyze(carrying_state(model), ids, window=10)
    assert result.rank == result.rank_bound == len(result.spectrum.values) == 25
    assert result.kld.contexts == 25
    assert result.kld.standard_error == 0  # every context was sampled


def test_short_texts_have_no_kld_and_no_perplexity():
    model = make_model()
    assert analyze(carrying_state(model), torch.randint(60, (2,))).kld is None
    assert analyze(carrying_state(model), torch.randint(60, (1,))).perplexity is None  # nothing predicts the first word


def test_any_function_from_ids_to_log_probabilities_works():
    table = torch.log_softmax(torch.randn(50, 50, dtype=torch.float64), dim=-1)  # a bigram model
    result = analyze(lambda ids: table[ids], torch.arange(50).repeat(3), window=40)
    assert result.rank == 50
    assert math.isfinite(result.effective_rank)


@pytest.mark.parametrize(
    ("log_prob", "error"),
    [
        (lambda ids: torch.full((len(ids), 9), -math.log(9)), TypeError),  # float32
        (lambda ids: torch.zeros(len(ids), 9, dtype=torch.float64), ValueError),  # probabilities sum to 9
        (lambda ids: torch.full((9,), -math.log(9), dtype=torch.float64), TypeError),
        (lambda ids: torch.full((3, 9), -math.log(9), dtype=torch.float64), ValueError),
    ],
    ids=["float32", "not normalised", "one dimension", "too few rows"],
)
def test_wrong_log_probabilities_raise(log_prob, error):
    with pytest.raises(error):
        analyze(log_prob, torch.arange(8))


def test_every_stage_reports_progress():
    calls = []
    analyze(carrying_state(make_model()), torch.randint(60, (90,)), window=40, on_stage=lambda *a: calls.append(a))
    assert [done for _, done, total in calls if total == 90] == [40, 80, 90]
    assert len([stage for stage, _, total in calls if total is None]) == 2  # singular values and KLD


# --- memory ---------------------------------------------------------------------------------------------------------


def test_large_vocabularies_sample_fewer_contexts():
    assert context_count(82_430, 150_000, 5000) < 2000
    assert context_count(82_430, 10**9, 5000) == 100


def test_memory_table_of_the_documentation():
    text = (Path(__file__).parents[2] / "docs" / "analysis.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) \(.*\) \| ([\d,]+) \| ([\d.]+) GiB \|$", text, flags=re.M)
    assert [row[0] for row in rows] == ["10,000", "33,278", "50,257", "128,256", "256,000"]
    for words, tokens, gib in rows:
        v = int(words.replace(",", ""))
        rows_read = default_rows(v) or 2 * v
        assert f"{rows_read:,}" == tokens
        assert f"{needed_bytes(rows_read, v, context_count(rows_read, v, CONTEXTS), WINDOW) / 2**30:.1f}" == gib


@pytest.mark.parametrize(
    ("free", "words"),
    [(4 * 2**30, 33_278), (1000 * 2**30, 100_000)],
    ids=["exact", "more than LAPACK can address"],
)
def test_an_analysis_that_does_not_fit_raises(monkeypatch, free, words):
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    with pytest.raises(UserError, match="tokens"):
        check_memory(245_569, words, 1000, 200, CPU)
    check_memory(1000, words, 1000, 200, CPU)


@pytest.mark.parametrize("words", [46_341, 128_256, 256_000, 793_471])
def test_default_rows_of_large_vocabularies_fit_into_memory(monkeypatch, words):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 32 * 2**30)
    rows = default_rows(words)
    check_memory(rows, words, context_count(rows, words, CONTEXTS), WINDOW, CPU)


def test_analyze_checks_memory_first(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(UserError):
        analyze(carrying_state(make_model()), torch.randint(60, (90,)))


@pytest.mark.gpu
def test_gpu_and_cpu_agree():
    model = make_model("mos", 200)
    ids = torch.randint(200, (700,))
    cpu = analyze(carrying_state(model), ids, contexts=50)
    gpu = analyze(carrying_state(model.cuda()), ids.cuda(), contexts=50)
    assert gpu.rank == cpu.rank
    assert gpu.spectrum.values == pytest.approx(cpu.spectrum.values, rel=1e-8, abs=1e-8)
    assert gpu.kld.mean == pytest.approx(cpu.kld.mean, rel=1e-9)
    assert gpu.peak_bytes > 0

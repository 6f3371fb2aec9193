import math
import re
from pathlib import Path

import pytest
import torch

from highrank.analysis import analyze, carrying_state
from highrank.analysis import matrix as matrix_module
from highrank.analysis import memory as memory_module
from highrank.analysis.kld import pairwise_kld, sample_contexts
from highrank.analysis.matrix import CONTEXTS, SPECTRUM_POINTS, WINDOW, Stages, context_count, spectrum_json
from highrank.analysis.memory import check_memory, free_bytes, needed_bytes
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes import ModelSpec

CPU = torch.device("cpu")


def a_model(head="mos", vocab_size=60):
    model = (
        build_model(ModelSpec(head=head, embed_dim=6, hidden_sizes=(10, 6), n_components=4), vocab_size).double().eval()
    )
    for p in model.parameters():
        p.data.mul_(4)
    torch.nn.init.normal_(model.head.bias)  # zero at first, and then it adds no rank
    return model


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
@pytest.mark.parametrize("window", [300, 64, 7])
def test_everything_is_that_of_the_whole_matrix_whatever_the_window(head, window):
    model, ids = a_model(head), torch.randint(60, (300,))
    whole, _ = model.log_prob(ids[:, None], model.initial_state(1))
    whole = whole[:, 0].detach()
    result = analyze(carrying_state(model), ids, contexts=40, seed=5, window=window)
    assert (result.tokens, result.vocabulary, result.projected) == (300, 60, None)
    torch.testing.assert_close(result.singular_values, torch.linalg.svdvals(whole), rtol=1e-8, atol=1e-9)
    assert result.rank > 20 if head == "mos" else result.rank == 8
    expected = pairwise_kld(whole[sample_contexts(300, 40, 5)], 300)
    assert result.kld.mean == pytest.approx(expected.mean, rel=1e-9)
    assert result.kld.standard_error == pytest.approx(expected.standard_error, rel=1e-6)
    assert result.perplexity == pytest.approx(evaluate(model, ids).perplexity, rel=1e-5)
    assert set(result.seconds) == {"rows", "svd", "kld"}


def test_fewer_tokens_than_words():
    model, ids = a_model(), torch.randint(60, (25,))
    result = analyze(carrying_state(model), ids, window=10)
    assert result.rank == len(result.singular_values) == 25
    assert result.kld.contexts == 25
    assert result.kld.standard_error == 0  # every context was taken
    assert analyze(carrying_state(model), ids[:2]).kld is None
    assert analyze(carrying_state(model), ids[:1]).perplexity is None  # the first word is never predicted


@pytest.mark.parametrize("head", ["softmax", "mos"])
def test_projected(head):
    model, ids = a_model(head, 200), torch.randint(200, (500,))
    exact = analyze(carrying_state(model), ids, contexts=30)
    result = analyze(carrying_state(model), ids, contexts=30, projection=60)
    assert result.projected == 60
    assert result.rank == (8 if head == "softmax" else 60)
    assert result.rank <= exact.rank
    assert result.effective_rank is None
    assert result.kld == exact.kld
    assert 1 <= len(result.singular_values) < 60
    assert len(result.singular_values) <= result.rank
    assert result.tolerance > 3 * exact.tolerance  # the projection may stretch what is round-off
    assert result.singular_values[0].item() == pytest.approx(exact.singular_values[0].item(), rel=4 / math.sqrt(120))


def test_any_function_will_do():
    table = torch.log_softmax(torch.randn(50, 50, dtype=torch.float64), dim=-1)  # a bigram model
    result = analyze(lambda words: table[words], torch.arange(50).repeat(3), window=40)
    assert result.rank == 50
    assert math.isfinite(result.effective_rank)


@pytest.mark.parametrize(
    ("log_prob", "error", "message"),
    [
        (lambda words: torch.zeros(len(words), 9), TypeError, "float64"),
        (lambda words: torch.zeros(len(words), 9, dtype=torch.float64), ValueError, "sum to 9"),
        (lambda words: torch.zeros(9, dtype=torch.float64), ValueError, "must map"),
        (lambda words: torch.zeros(3, 9, dtype=torch.float64), ValueError, "must map"),
    ],
)
def test_functions_that_will_not_do(log_prob, error, message):
    with pytest.raises(error, match=message):
        analyze(log_prob, torch.arange(8))
    with pytest.raises(ValueError, match="ids are empty"):
        analyze(log_prob, torch.arange(0))


def test_progress_is_told_for_every_stage():
    told = []
    analyze(carrying_state(a_model()), torch.randint(60, (90,)), window=40, on_progress=lambda *a: told.append(a))
    assert [done for _, done, total in told if total == 90] == [40, 80, 90]
    assert [stage for stage, _, total in told if total is None] == [
        "singular values of a 60 x 60 matrix",
        "KL divergence of all pairs of 90 contexts",
    ]


def test_long_spectra_are_thinned_out():
    values = torch.linspace(9, 1, 5000)
    kept = spectrum_json(values)
    assert len(kept["index"]) <= SPECTRUM_POINTS
    assert (kept["index"][0], kept["index"][-1]) == (1, 5000)
    assert kept["values"] == values[torch.tensor(kept["index"]) - 1].tolist()
    assert spectrum_json(values[:7])["index"] == [1, 2, 3, 4, 5, 6, 7]


def test_penn_treebank_fits_in_8_gib():
    contexts = context_count(82_430, 10_000, 5000)
    assert contexts == 5000
    assert needed_bytes(82_430, 10_000, None, contexts, 200) < 6 * 2**30  # the rest is for the model and torch
    assert context_count(82_430, 150_000, 5000) < 2000
    assert context_count(82_430, 10**9, 5000) == 100  # fewer would say nothing
    assert needed_bytes(100, 10_000, None, 3, 10) < needed_bytes(10**6, 10_000, None, 3, 10) / 50


def test_the_memory_table_of_the_documentation():
    text = (Path(__file__).parents[2] / "docs" / "analysis.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) \(.*\) \| (.+) \| ([\d.]+) GiB \|$", text, flags=re.M)
    assert [row[0] for row in rows] == ["10,000", "33,278", "100,000"]
    for words, exact, projected in rows:
        v = int(words.replace(",", ""))
        contexts = context_count(10**6, v, CONTEXTS)
        assert f"{needed_bytes(10**6, v, 2000, contexts, WINDOW) / 2**30:.1f}" == projected
        if v**2 < 2**31:
            assert f"{needed_bytes(10**6, v, None, contexts, WINDOW) / 2**30:.1f} GiB" == exact


def test_too_little_memory_is_told_beforehand(monkeypatch):
    monkeypatch.setattr(memory_module, "free_bytes", lambda device: 4 * 2**30)
    with pytest.raises(
        UserError, match=r"exact analysis of 245,569 x 33,278 .* needs about .* GiB .* --projection 4000"
    ):
        check_memory(245_569, 33_278, None, 1000, 200, CPU)
    check_memory(245_569, 33_278, 1000, 1000, 200, CPU)
    with pytest.raises(UserError, match="use a smaller --projection than 30000"):
        check_memory(245_569, 33_278, 30_000, 1000, 200, CPU)
    monkeypatch.setattr(memory_module, "free_bytes", lambda device: 1000 * 2**30)
    with pytest.raises(UserError, match=r"2\^31 elements.* --projection 4000"):
        check_memory(245_569, 100_000, None, 1000, 200, CPU)
    monkeypatch.setattr(memory_module, "free_bytes", lambda device: None)  # where it cannot be known, we try
    check_memory(245_569, 33_278, None, 1000, 200, CPU)
    monkeypatch.setattr(memory_module, "free_bytes", lambda device: 1000)
    with pytest.raises(UserError, match="exact analysis"):
        analyze(carrying_state(a_model()), torch.randint(60, (90,)))


def test_stages_are_timed_one_by_one(monkeypatch):
    clock = iter([0.0, 1.0, 5.0])
    monkeypatch.setattr(matrix_module.time, "perf_counter", lambda: next(clock))
    stages = Stages(CPU, None)
    stages.end("rows")
    stages.end("svd")
    assert stages.seconds == {"rows": 1.0, "svd": 4.0}


def test_free_memory_is_what_the_machine_and_the_container_leave(tmp_path, monkeypatch):
    assert free_bytes(CPU) is None or free_bytes(CPU) > 2**20
    monkeypatch.setattr(memory_module, "Path", lambda path: tmp_path / path.lstrip("/"))
    assert free_bytes(CPU) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    1000 kB\n")
    assert free_bytes(CPU) == 1000 * 1024
    group = tmp_path / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("100000")
    for limit, free in (("600000", 500_000), ("9000000", 1000 * 1024), ("max", 1000 * 1024)):
        (group / "memory.max").write_text(limit)
        assert free_bytes(CPU) == free


@pytest.mark.gpu
@pytest.mark.parametrize("projection", [None, 40])
def test_on_a_gpu_as_on_a_cpu(projection):
    model, ids = a_model("mos", 200), torch.randint(200, (700,))
    cpu = analyze(carrying_state(model), ids, contexts=50, projection=projection)
    gpu = analyze(carrying_state(model.cuda()), ids.cuda(), contexts=50, projection=projection)
    assert gpu.rank == cpu.rank
    torch.testing.assert_close(gpu.singular_values, cpu.singular_values, rtol=1e-8, atol=1e-8)
    assert gpu.kld.mean == pytest.approx(cpu.kld.mean, rel=1e-9)
    assert gpu.peak_bytes > 0

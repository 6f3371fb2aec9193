import pytest
import torch

from helpers import CPU
from hf_models import TEXT, save_model
from highrank.analysis.hf import analyze_hf, in_windows
from highrank.analysis.matrix import analyze_rows
from highrank.errors import UserError
from highrank.hf.pretrained import load_hf


@pytest.mark.parametrize("context", [1, 2, 3, 5, 8])
def test_windows_overlap_by_half_a_context(context):
    def predict(ids):  # (t, 2): the token, and the number of tokens before it in its window
        assert len(ids) <= context
        return torch.stack([ids, torch.arange(len(ids))], dim=1)

    for tokens in range(1, 30):
        rows = torch.cat(list(in_windows(predict, torch.arange(tokens), context))).tolist()
        assert [token for token, _ in rows] == list(range(tokens))
        assert all(before >= min(token, context - max(1, context // 2)) for token, before in rows)


@pytest.mark.parametrize("tie", [True, False])
def test_factors_and_rows_of_a_softmax_agree(tmp_path, tie):
    model = load_hf(save_model(tmp_path / "model", tie_word_embeddings=tie), CPU)
    ids = model.encode(TEXT)
    assert ids[:4].tolist() == [1, 2, 5, 10]
    by_factors = analyze_hf(model, ids)
    with torch.no_grad():
        by_rows = analyze_rows(in_windows(model.log_prob, ids, model.context), ids)
    assert by_factors.head == "softmax"
    assert by_factors.rank_bound == by_factors.rank == by_rows.rank == 9  # D + 1: there is no bias
    assert by_factors.spectrum.values[:9] == pytest.approx(by_rows.spectrum.values[:9], rel=1e-7)
    assert by_factors.perplexity == pytest.approx(by_rows.perplexity)
    assert by_factors.kld.mean == pytest.approx(by_rows.kld.mean)


def test_capped_logits_are_not_a_plain_softmax(tmp_path):
    model = load_hf(save_model(tmp_path / "model", "gemma2", final_logit_softcapping=2.0), CPU)
    ids = model.encode(TEXT)
    assert not model.ends_in_softmax()
    summary = analyze_hf(model, ids)
    assert summary.head == "other"
    assert summary.rank > 8 + 2
    assert summary.varying is None


def test_a_high_cap_is_not_a_plain_softmax_either(tmp_path):
    """It changes these logits by less than the round-off of float32 would."""
    model = load_hf(save_model(tmp_path / "model", "gemma2", final_logit_softcapping=1000.0), CPU, "float32")
    assert not model.ends_in_softmax()


def test_weights_of_low_precision_are_a_plain_softmax(tmp_path):
    model = load_hf(save_model(tmp_path / "model"), CPU, "stored")
    assert model.weight.dtype == torch.bfloat16
    assert model.ends_in_softmax()


def test_capped_logits_need_float64(tmp_path):
    folder = save_model(tmp_path / "model", "gemma2", final_logit_softcapping=2.0)
    model = load_hf(folder, CPU, "float32")
    with pytest.raises(UserError):
        analyze_hf(model, model.encode(TEXT))


def test_a_softmax_describes_its_weights_and_windows(tmp_path):
    model = load_hf(save_model(tmp_path / "model"), CPU, "float32")
    summary = analyze_hf(model, model.encode(TEXT))
    assert (summary.head, summary.rank, summary.rank_bound, summary.embed_dim) == ("softmax", 9, 9, 8)
    assert (summary.weights_dtype, summary.precision, summary.context) == ("bfloat16", "float32", 16)


def test_a_model_that_sees_later_words_raises(tmp_path):
    model = load_hf(save_model(tmp_path / "model", "bert"), CPU)
    with pytest.raises(UserError):
        analyze_hf(model, model.encode(TEXT))

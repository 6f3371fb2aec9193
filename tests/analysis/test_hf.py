import json
import unittest.mock

import pytest
import torch

from helpers import CPU
from hf_models import TEXT, save_model
from highrank import memory
from highrank.analysis.hf import analyze_hf, in_windows, is_plain_softmax, load_hf, output_layer
from highrank.analysis.matrix import analyze_rows
from highrank.errors import UserError


def quantised_layer():
    """Return a linear layer like those of bitsandbytes: a subclass of nn.Linear with packed integers as its weight."""
    layer = torch.nn.Linear(8, 61)
    layer.weight = torch.nn.Parameter(torch.zeros(244, 1, dtype=torch.uint8), requires_grad=False)
    return layer


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("hf") / "llama")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_of_any_precision_are_cast_to_float64(tmp_path, dtype):
    model = load_hf(save_model(tmp_path / "model", dtype=dtype), CPU)
    assert model.weights_dtype == str(dtype).removeprefix("torch.")
    assert model.weight.dtype == torch.float64
    assert (model.context, model.weight.shape) == (16, (61, 8))
    assert load_hf(str(tmp_path / "model"), CPU, "float32").weight.dtype == torch.float32


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
    assert not is_plain_softmax(model, ids)
    summary = analyze_hf(model, ids)
    assert summary.head == "other"
    assert summary.rank > 8 + 2
    assert summary.varying is None


def test_capped_logits_need_float64(tmp_path):
    folder = save_model(tmp_path / "model", "gemma2", final_logit_softcapping=2.0)
    model = load_hf(folder, CPU, "float32")
    with pytest.raises(UserError):
        analyze_hf(model, model.encode(TEXT))


def test_a_softmax_describes_its_weights_and_windows(llama):
    model = load_hf(llama, CPU, "float32")
    summary = analyze_hf(model, model.encode(TEXT))
    assert (summary.head, summary.rank, summary.rank_bound, summary.embed_dim) == ("softmax", 9, 9, 8)
    assert (summary.weights_dtype, summary.precision, summary.context) == ("bfloat16", "float32", 16)


def test_a_model_that_sees_later_words_raises(tmp_path):
    model = load_hf(save_model(tmp_path / "model", "bert"), CPU)
    with pytest.raises(UserError):
        analyze_hf(model, model.encode(TEXT))


def test_weights_may_stay_as_they_are_stored(llama):
    model = load_hf(llama, CPU, "stored")
    assert model.weight.dtype == torch.bfloat16
    assert is_plain_softmax(model, torch.arange(16))


@pytest.mark.parametrize("layer", [None, torch.nn.Identity(), quantised_layer()], ids=["none", "other", "quantised"])
def test_an_output_layer_that_is_not_a_matrix_raises(layer):
    model = unittest.mock.Mock(get_output_embeddings=lambda: layer)
    with pytest.raises(UserError, match="tiny"):
        output_layer(model, "tiny")


def test_missing_and_empty_folders_raise(tmp_path):
    with pytest.raises(UserError, match="missing"):
        load_hf("./missing", CPU)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty"):
        load_hf(str(tmp_path / "empty"), CPU)


def test_pickled_weights_are_not_read(tmp_path):
    folder = tmp_path / "model"
    save_model(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": torch.zeros(61, 8)}, folder / "pytorch_model.bin")
    with pytest.raises(UserError):
        load_hf(str(folder), CPU)


def test_code_that_comes_with_a_model_is_not_run(tmp_path):
    folder = tmp_path / "model"
    save_model(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.MyConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass MyConfig: pass\n")
    with pytest.raises(UserError):
        load_hf(str(folder), CPU)
    assert not (tmp_path / "ran").exists()


def test_a_file_without_the_output_layer_raises(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    save_model(folder, tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"lm_head\.weight"):
        load_hf(str(folder), CPU)


def test_a_file_with_the_weights_of_another_head_raises(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    save_model(folder)
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "lm_head.latent.weight": torch.ones(8, 8)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"lm_head\.latent\.weight"):
        load_hf(str(folder), CPU)


def test_a_model_saved_by_another_class_raises(tmp_path):
    folder = tmp_path / "model"
    save_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaWithMixture"]}))
    with pytest.raises(UserError, match="LlamaWithMixture"):
        load_hf(str(folder), CPU)


def test_too_little_memory_for_the_weights_raises(llama, monkeypatch):
    weights = sum(p.numel() for p in load_hf(llama, CPU).model.parameters())
    monkeypatch.setattr(memory, "free_bytes", lambda device: 8 * weights - 1)
    with pytest.raises(UserError):
        load_hf(llama, CPU)
    load_hf(llama, CPU, "float32")

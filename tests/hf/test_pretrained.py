"""Loading Hugging Face models: in any precision, complete, and without running their code."""

import json
import unittest.mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import processors

from helpers import CPU
from hf_models import save_model
from highrank import memory
from highrank.errors import UserError
from highrank.hf import pretrained
from highrank.hf.pretrained import load_hf, output_layer


def quantised_layer():
    """Return a linear layer like those of bitsandbytes: a subclass of nn.Linear with packed integers as its weight."""
    layer = torch.nn.Linear(8, 61)
    layer.weight = torch.nn.Parameter(torch.zeros(244, 1, dtype=torch.uint8), requires_grad=False)
    return layer


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_of_any_precision_are_cast_to_float64_by_default(tmp_path, dtype):
    model = load_hf(save_model(tmp_path / "model", dtype=dtype), CPU)
    assert model.weights_dtype == str(dtype).removeprefix("torch.")
    assert model.weight.dtype == torch.float64
    assert (model.context, model.weight.shape) == (16, (61, 8))
    assert load_hf(str(tmp_path / "model"), CPU, "float32").weight.dtype == torch.float32
    assert load_hf(str(tmp_path / "model"), CPU, "stored").weight.dtype == dtype


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
    folder = tmp_path / "model"
    save_model(folder, tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"lm_head\.weight"):
        load_hf(str(folder), CPU)


def test_a_file_with_the_weights_of_another_head_raises(tmp_path):
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


def test_too_little_memory_for_the_weights_raises(tmp_path, monkeypatch):
    llama = save_model(tmp_path / "model")
    weights = sum(p.numel() for p in load_hf(llama, CPU).model.parameters())
    monkeypatch.setattr(memory, "free_bytes", lambda device: 8 * weights - 1)
    with pytest.raises(UserError):
        load_hf(llama, CPU)
    load_hf(llama, CPU, "float32")


def test_a_text_encoded_in_parts_has_the_same_ids(tmp_path, monkeypatch):
    model = load_hf(save_model(tmp_path / "model"), CPU)
    start_token = processors.TemplateProcessing(single="w0 $A", special_tokens=[("w0", 1)])
    model.tokenizer.backend_tokenizer.post_processor = start_token
    text = "w1 w2 w3\nw4 w5\n\nw6 w7 w8 w9\nw10"
    whole = model.encode(text)
    assert model.words(whole.tolist()) == ["w0", *text.split()]
    monkeypatch.setattr(pretrained, "PART", 4)
    assert torch.equal(model.encode(text), whole)
    start = model.encode(text, 4)
    assert 4 <= len(start) < len(whole)
    assert torch.equal(start, whole[: len(start)])
    assert len(model.encode("")) == 0


def test_rows_of_the_output_matrix_without_a_token_have_a_name(tmp_path):
    model = load_hf(save_model(tmp_path / "model"), CPU)
    size = len(model.tokenizer)
    assert model.words([0, size]) == [model.tokenizer.convert_ids_to_tokens(0), f"<unused-{size}>"]

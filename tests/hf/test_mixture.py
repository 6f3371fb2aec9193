import importlib
import json
import pickle
import sys
import types

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM

import highrank.hf
from hf_models import make_model, separate, some_ids
from highrank.errors import MissingPackageError, UserError
from highrank.hf import convert

FAMILIES = ["gpt2", "llama", "qwen2", "qwen3", "gemma", "gemma3_text", "opt", "gpt_neox"]  # Pythia is a GPT-NeoX


@pytest.fixture
def mixture():
    return separate(convert(make_model(), 3))


# --- the start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_converted_model_starts_equal_to_the_original(family):
    model = make_model(family).double()
    ids = some_ids()
    with torch.no_grad():
        before = model(ids).logits.log_softmax(-1)
        after = convert(model, 3)(ids).logits
    assert after.dtype == torch.float64
    assert (after - before).abs().max() < 1e-13


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_starts_equal_to_the_original(family):
    model = make_model(family).double().train()
    ids = some_ids()
    labels = ids.clone()
    labels[0, 4:] = -100
    before = nn.functional.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    after = convert(model, 3)(ids, labels=labels).loss
    assert after.item() == pytest.approx(before.item(), rel=1e-13)


@pytest.mark.parametrize("tied", [True, False])
def test_tied_embeddings_stay_tied(tied, tmp_path):
    model = convert(make_model(tie_word_embeddings=tied))
    model.save_pretrained(tmp_path)
    for m in (model, AutoModelForCausalLM.from_pretrained(tmp_path)):
        assert (m.get_output_embeddings().weight is m.get_input_embeddings().weight) == tied


def test_another_model_of_the_same_configuration_is_not_changed():
    other = make_model()
    converted = convert(AutoModelForCausalLM.from_config(other.config), 3)
    assert type(other.config) is transformers.LlamaConfig
    assert not hasattr(other.config, "highrank")
    assert converted.model.config is converted.config


def test_a_nested_configuration_remains_that_of_its_part_of_the_model():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    text = dict(sizes, vocab_size=60, num_hidden_layers=1, num_key_value_heads=1, head_dim=8)
    vision = dict(sizes, num_hidden_layers=1, image_size=28, patch_size=14)
    config = transformers.Gemma3Config(text_config=text, vision_config=vision)
    converted = convert(AutoModelForCausalLM.from_config(config), 2)
    assert converted.model.language_model.config is converted.config.text_config is not config.text_config


def test_the_components_separate_with_training():
    model = convert(make_model(), 3).train()
    ids = some_ids(8, 12)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(20):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5
    _, h = model.lm_head.components(model.model(ids).last_hidden_state)
    assert (h[..., 0, :] - h[..., 1, :]).abs().mean() > 0.01


# --- training and evaluation ----------------------------------------------------------------------------------------


def test_training_returns_the_loss_and_builds_no_logits(mixture, monkeypatch):
    ids = some_ids()
    expected = mixture(ids, labels=ids).loss  # evaluation: from the log-probabilities
    monkeypatch.setattr(mixture.lm_head, "log_prob", None)
    output = mixture.train()(ids, labels=ids)
    assert output.logits is None
    assert output.loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_evaluation_returns_log_probabilities(mixture):
    ids = some_ids()
    logits = mixture(ids, labels=ids).logits
    assert torch.allclose(logits.exp().sum(-1), torch.ones(ids.shape))
    assert torch.equal(logits, mixture.lm_head.log_prob(mixture.model(ids).last_hidden_state))


def test_arguments_may_be_positional(mixture):
    ids = some_ids()
    mask = torch.ones_like(ids)
    mask[:, 0] = 0
    assert torch.equal(mixture(ids, mask).logits, mixture(ids, attention_mask=mask).logits)
    mixture.train()
    assert torch.equal(mixture(ids, mask, labels=ids).loss, mixture(ids, attention_mask=mask, labels=ids).loss)


def test_the_loss_is_divided_by_the_number_of_items_in_the_batch(mixture):
    ids = some_ids(4)
    mixture.train()
    whole = mixture(ids, labels=ids).loss
    parts = [mixture(part, labels=part, num_items_in_batch=torch.tensor(32)).loss for part in ids.split(1)]
    assert sum(parts).item() == pytest.approx(whole.item(), rel=1e-6)


def test_labels_may_be_shifted_already(mixture):
    ids = some_ids()
    shifted = nn.functional.pad(ids, (0, 1), value=-100)[:, 1:]
    mixture.train()
    assert torch.equal(mixture(ids, shift_labels=shifted).loss, mixture(ids, labels=ids).loss)


def test_a_batch_of_padding_has_a_gradient_of_zero(mixture):
    ids = some_ids()
    mixture.train()(ids, labels=torch.full_like(ids, -100), num_items_in_batch=7).loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in mixture.parameters())


def test_a_tuple_is_returned_on_request(mixture):
    ids = some_ids()
    mixture.train()
    (loss,) = mixture(ids, labels=ids, return_dict=False)
    assert torch.equal(loss, mixture(ids, labels=ids).loss)


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"do_sample": True, "top_p": 0.9, "temperature": 0.7},
        {"do_sample": False, "num_beams": 3},
    ],
)
def test_generate_uses_the_mixture(mixture, options):
    ids = some_ids(2, 4)
    torch.manual_seed(5)
    made = mixture.generate(ids, max_new_tokens=6, attention_mask=torch.ones_like(ids), pad_token_id=0, **options)
    assert made.shape == (2, 10)
    if options == {"do_sample": False}:  # the cache of keys and values changes nothing
        for _ in range(6):
            ids = torch.cat([ids, mixture(ids).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
        assert torch.equal(made, ids)


# --- saving and loading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_trained_mixture_is_saved_and_loaded_bit_for_bit(family, tmp_path):
    make_model(family).save_pretrained(tmp_path / "original")  # Pythia's files have other names for some weights
    model = separate(convert(AutoModelForCausalLM.from_pretrained(tmp_path / "original"), 3))
    model.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.glob("*.bin")] == []
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    ids = some_ids()
    assert torch.equal(model(ids).logits, loaded(ids).logits)


def test_the_precision_can_be_chosen_when_loading(mixture, tmp_path):
    mixture.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}


def test_other_models_of_the_class_do_not_change(mixture):
    other = make_model()
    assert type(other) is transformers.LlamaForCausalLM
    assert type(other.lm_head) is nn.Linear
    assert mixture.config.model_type == other.config.model_type == "llama"


def test_the_class_of_the_original_keeps_its_sizes(mixture, tmp_path):
    """It drops the mixture, which transformers reports; a default configuration would take all the memory."""
    mixture.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    assert loaded.config.hidden_size == mixture.config.hidden_size
    assert type(loaded.lm_head) is nn.Linear


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_a_mixture_can_be_pickled(family):
    model = convert(make_model(family), 3)
    again = pickle.loads(pickle.dumps(model))
    assert type(again) is type(model)
    assert type(again.config) is type(model.config)
    ids = some_ids()
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_without_this_package_loading_fails(mixture, tmp_path):
    mixture.save_pretrained(tmp_path)
    model_type = json.loads((tmp_path / "config.json").read_text())["model_type"]
    assert model_type not in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


# --- errors ---------------------------------------------------------------------------------------------------------


def test_soft_capped_logits_are_an_error():
    with pytest.raises(UserError, match="Gemma2"):
        convert(make_model("gemma2"))
    convert(make_model("gemma2", final_logit_softcapping=None))


@pytest.mark.parametrize(("family", "options"), [("granite", {"logits_scaling": 2.0}), ("cohere", {})])
def test_scaled_logits_are_an_error(family, options):
    with pytest.raises(UserError, match=family.title()):
        convert(make_model(family, **options))


def test_encoders_are_an_error():
    config = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    for model in (transformers.BertForMaskedLM(config), transformers.BertLMHeadModel(config)):
        with pytest.raises(UserError, match="Bert"):
            convert(model)


def test_an_exported_run_is_an_error():
    spec = {"head": "softmax", "embed_dim": 4, "hidden_sizes": [4]}
    with pytest.raises(UserError, match="Highrank"):
        convert(highrank.hf.HighrankForCausalLM(highrank.hf.HighrankConfig(vocab_size=9, spec=spec)))


def test_a_model_without_a_base_model_is_an_error():
    sizes = {"pad_token_id": 0, "num_experts_per_tok": 1, "num_local_experts": 2, "intermediate_size_mlp": 12}
    with pytest.raises(UserError, match="Llama4"):
        convert(make_model("llama4_text", **sizes))


def test_a_model_is_converted_once(mixture):
    with pytest.raises(UserError, match="already"):
        convert(mixture)


def test_a_quantised_output_layer_is_an_error():
    class Quantised(nn.Linear):
        pass

    model = make_model()
    model.lm_head = Quantised(8, 61, bias=False)
    with pytest.raises(UserError, match="quantised"):
        convert(model)
    assert type(model) is transformers.LlamaForCausalLM


def test_the_router_loss_is_an_error():
    options = {"num_local_experts": 2, "num_experts_per_tok": 1}
    model = convert(make_model("mixtral", **options)).train()
    ids = some_ids()
    assert model(ids, labels=ids).loss.isfinite()
    with pytest.raises(UserError, match="router"):
        model(ids, labels=ids, output_router_logits=True)


def test_another_vocabulary_size_is_an_error_and_leaves_the_model_whole(mixture):
    ids = some_ids()
    before = mixture.eval()(ids).logits
    with pytest.raises(UserError):
        mixture.resize_token_embeddings(mixture.config.vocab_size + 1)
    assert mixture.resize_token_embeddings(mixture.config.vocab_size) is mixture.get_input_embeddings()
    assert torch.equal(mixture(ids).logits, before)


def test_a_loss_that_would_skip_the_mixture_is_an_error(mixture):
    def forward(self, input_ids):
        return None

    forward.__module__ = "liger_kernel.transformers.model.llama"
    with pytest.raises(UserError, match="Liger"):
        mixture.forward = types.MethodType(forward, mixture)


def test_without_transformers_the_import_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingPackageError, match=r"\[hf\]"):
        importlib.reload(highrank.hf)


# --- on a GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_mixture_trains_and_generates_in_bfloat16_on_a_gpu():
    sizes = {"hidden_size": 64, "vocab_size": 1000, "head_dim": 32}
    truth = separate(convert(make_model(**sizes), 3)).double().train()
    ids = some_ids(4, 24)
    expected = truth(ids, labels=ids).loss
    expected.backward()
    model = separate(convert(make_model(**sizes), 3)).to("cuda", torch.bfloat16).train()
    loss = model(ids.cuda(), labels=ids.cuda()).loss
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=0.02)
    ours, theirs = model.lm_head.shift.weight.grad.double().cpu(), truth.lm_head.shift.weight.grad
    assert (ours - theirs).norm() < 0.2 * theirs.norm()  # 0.07 is the round-off of bfloat16 on a CPU
    made = model.eval().generate(ids[:, :4].cuda(), max_new_tokens=4, do_sample=True, pad_token_id=0)
    assert made.shape == (4, 8)

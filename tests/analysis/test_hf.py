"""Models of transformers, made here: no network, no download."""

import json
import math
import sys
import types
import warnings

import pytest
import torch

from highrank.analysis import analyze_softmax
from highrank.analysis.hf import (
    _windows,
    check_causal,
    encode,
    hidden_blocks,
    is_plain_softmax,
    load_hf,
    log_prob_blocks,
    parameter_bytes,
)
from highrank.analysis.matrix import analyze_rows
from highrank.errors import UserError

CPU = torch.device("cpu")
WORDS = ["<unk>", *(f"w{i}" for i in range(60))]
SIZES = {
    "vocab_size": 61, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 16,
}  # fmt: skip
TEXT = " ".join(f"w{i * i % 59}" for i in range(150))


def make(folder, kind="llama", dtype=torch.bfloat16, **options):
    """A tiny model with random weights and a tokenizer of white space, as a user would have it on disk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
        from tokenizers import Tokenizer, models, pre_tokenizers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        stem, name = {
            "llama": ("Llama", "LlamaForCausalLM"),
            "gemma2": ("Gemma2", "Gemma2ForCausalLM"),
            "bert": ("Bert", "BertLMHeadModel"),
        }[kind]
        more = {"num_key_value_heads": 1, "head_dim": 4} if kind == "gemma2" else {}
        special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        config = getattr(transformers, f"{stem}Config")(**{**SIZES, **more, **special, **options})
        torch.manual_seed(1)
        model = getattr(transformers, name)(config)
        for parameter in model.parameters():
            parameter.data.mul_(5)
        model.to(dtype).save_pretrained(folder)
        tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make(tmp_path_factory.mktemp("hf") / "llama")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_cast_up_whatever_the_weights_are(tmp_path, dtype):
    model = load_hf(make(tmp_path / "model", dtype=dtype), CPU)
    assert model.weights_dtype == str(dtype).removeprefix("torch.")
    assert model.weight.dtype == torch.float64
    assert (model.context, model.weight.shape) == (16, (61, 8))
    assert parameter_bytes(str(tmp_path / "model"), "float64") == 8 * sum(p.numel() for p in model.model.parameters())
    assert parameter_bytes(str(tmp_path / "model"), "float32") == 4 * sum(p.numel() for p in model.model.parameters())
    assert load_hf(str(tmp_path / "model"), CPU, "float32").weight.dtype == torch.float32


def test_a_long_context_is_used_in_part(llama, monkeypatch):
    monkeypatch.setattr("highrank.analysis.hf.MAX_CONTEXT", 10)
    assert load_hf(llama, CPU).context == 10


@pytest.mark.parametrize("context", [1, 2, 3, 5, 8])
def test_windows_overlap_by_half_a_context(context):
    for tokens in range(1, 30):
        rows = []  # (token, how many words its window has shown before it)
        for start, skip in _windows(tokens, context):
            new = list(range(start + skip, min(start + context, tokens)))
            assert new  # no window for nothing
            rows += [(token, token - start) for token in new]
        assert [token for token, _ in rows] == list(range(tokens))
        assert all(before >= min(token, context - max(1, context // 2)) for token, before in rows)


def test_no_more_than_a_context_is_asked_for_at_once():
    def zeros(ids, size):
        assert len(ids) <= 12
        return torch.zeros(len(ids), size)

    stub = types.SimpleNamespace(context=12, weight=torch.zeros(5, 8), bias=None)
    stub.hidden, stub.log_prob = lambda ids: zeros(ids, 8), lambda ids: zeros(ids, 5) - math.log(5)
    assert is_plain_softmax(stub, torch.arange(100))
    check_causal(stub, torch.arange(100))


def test_every_token_once_and_with_at_least_half_a_context(llama):
    model = load_hf(llama, CPU)
    ids = encode(model, TEXT)
    assert ids[:4].tolist() == [1, 2, 5, 10]
    for tokens in (1, 15, 16, 17, 24, 25, 150):
        assert sum(map(len, hidden_blocks(model, ids[:tokens]))) == tokens
    rows = torch.cat(list(log_prob_blocks(model, ids)))
    assert torch.equal(rows[:16], model.log_prob(ids[:16]))
    torch.testing.assert_close(rows[16], model.log_prob(ids[8:17])[-1])  # its context starts half a window earlier
    torch.testing.assert_close(rows[40], model.log_prob(ids[32:41])[-1])


@pytest.mark.parametrize("tie", [True, False])
def test_a_softmax_by_its_factors_and_by_its_rows(tmp_path, tie):
    model = load_hf(make(tmp_path / "model", tie_word_embeddings=tie), CPU)
    ids = encode(model, TEXT)
    check_causal(model, ids)
    assert is_plain_softmax(model, ids)
    found = analyze_softmax(hidden_blocks(model, ids), model.weight, tokens=len(ids), ids=ids)
    blind = analyze_rows(log_prob_blocks(model, ids), ids)
    assert found.rank_bound == found.analysis.rank == blind.rank == 9  # D + 1: there is no bias
    torch.testing.assert_close(found.analysis.singular_values[:9], blind.singular_values[:9], rtol=1e-7, atol=1e-7)
    assert found.analysis.perplexity == pytest.approx(blind.perplexity)
    assert found.analysis.kld.mean == pytest.approx(blind.kld.mean)


def test_capped_logits_are_no_plain_softmax(tmp_path):
    model = load_hf(make(tmp_path / "model", "gemma2", final_logit_softcapping=2.0), CPU)
    ids = encode(model, TEXT)
    assert not is_plain_softmax(model, ids)
    assert analyze_rows(log_prob_blocks(model, ids), ids).rank > 8 + 2


def test_a_model_that_sees_the_future(tmp_path):
    model = load_hf(make(tmp_path / "model", "bert"), CPU)
    with pytest.raises(UserError, match="it is no causal language model"):
        check_causal(model, encode(model, TEXT))


def test_models_that_cannot_be_read(tmp_path, llama):
    with pytest.raises(UserError, match=r"there is no folder \./missing, and no model of that name"):
        load_hf("./missing", CPU)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no causal language model that can be read"):
        load_hf(str(tmp_path / "empty"), CPU)


def test_pickled_weights_are_left_alone(tmp_path):
    folder = tmp_path / "model"
    make(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": torch.zeros(61, 8)}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="weights in safetensors"):
        load_hf(str(folder), CPU)


def test_code_that_comes_with_a_model_is_not_run(tmp_path):
    folder = tmp_path / "model"
    make(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.MyConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass MyConfig: pass\n")
    with pytest.raises(UserError, match="holds no causal language model that can be read"):
        load_hf(str(folder), CPU)
    assert not (tmp_path / "ran").exists()


def test_no_output_layer(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    make(folder, tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="has no output layer, so it gives no logits"):
        load_hf(str(folder), CPU)


def test_the_hub_out_of_reach(monkeypatch):
    import transformers

    def unreachable(*arguments, **options):
        raise OSError("We couldn't connect to the hub. Check your connection.")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unreachable)
    with pytest.raises(UserError, match=r"from the hub \(We couldn't connect to the hub\): check the name"):
        load_hf("somebody/something", CPU)


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'highrank\[hf\]'"):
        load_hf("anything", CPU)


def test_a_tokenizer_of_another_model(tmp_path):
    model = load_hf(make(tmp_path / "model", vocab_size=30), CPU)
    with pytest.raises(UserError, match="tokenizer knows more words"):
        encode(model, TEXT)

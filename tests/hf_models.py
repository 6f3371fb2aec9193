"""Small Hugging Face causal language models with random weights, made from their configurations."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()

WORDS = ["<unk>", *(f"w{i}" for i in range(60))]
TEXT = " ".join(f"w{i * i % 59}" for i in range(150))
SIZES = {
    "vocab_size": len(WORDS), "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 32,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
OPTIONS = {
    "opt": {"ffn_dim": 12, "word_embed_proj_dim": 6, "dropout": 0.0, "pad_token_id": 1},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}


def make_model(family="llama", **options):
    """Return a model of a family in evaluation mode, the same one at every call."""
    config = CONFIG_MAPPING[family](**SIZES | OPTIONS.get(family, {}) | options)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        parameter.data.mul_(5)  # far from uniform predictions
    return model


def save_model(folder, family="llama", dtype=torch.bfloat16, **options):
    """Save a model of a family with a context of 16 tokens, and its tokenizer; return the folder as a string."""
    make_model(family, **{"max_position_embeddings": 16, **options}).to(dtype).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return str(folder)


def word_tokenizer(**special_tokens):
    """Return a tokenizer of words at white space."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **special_tokens)


def separate(model):
    """Draw the U_k of a converted model and its prior, as if it had been trained, and return the model."""
    head = model.get_output_embeddings()
    torch.manual_seed(2)
    torch.nn.init.normal_(head.shift.weight, std=0.5)
    torch.nn.init.normal_(head.prior.weight)
    return model


def some_ids(rows=2, length=9):
    return torch.randint(len(WORDS), (rows, length), generator=torch.Generator().manual_seed(3))

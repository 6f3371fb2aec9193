"""Tiny models of transformers, made on the spot: nothing is downloaded."""

import warnings

import torch

WORDS = ["<unk>", *(f"w{i}" for i in range(60))]
SIZES = {
    "vocab_size": 61, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 16,
}  # fmt: skip
TEXT = " ".join(f"w{i * i % 59}" for i in range(150))


def make_hf_model(folder, kind="llama", dtype=torch.bfloat16, **options):
    """Save a tiny model with random weights and a whitespace tokenizer, and return its folder."""
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

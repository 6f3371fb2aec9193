"""Language models of this package as Hugging Face models, with their vocabulary as a tokenizer.

    model = AutoModelForCausalLM.from_pretrained(folder)     # after `import highrank.hf`
    tokenizer = AutoTokenizer.from_pretrained(folder)

A recurrent model has no keys and values: its state is passed in and returned as `state`, and `generate` carries it.

Shapes: input_ids and labels (B, T), unlike the (T, B) of `LanguageModel`; logits (B, T, V).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from highrank.data.catalog import EOS, UNK
from highrank.data.tokenizer import TextCodec, unknown_id
from highrank.errors import UserError
from highrank.hf.mixture import IGNORE
from highrank.models.language_model import LanguageModel, build_model
from highrank.ops.lstm import State
from highrank.recipes import ModelSpec
from highrank.schema import from_json, to_json


class HighrankConfig(PreTrainedConfig):
    """The recipe of a language model and the size of its vocabulary."""

    model_type = "highrank"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["state"]  # `Trainer.predict` would collect it with the logits

    vocab_size: int = 1
    spec: dict[str, Any] | None = None  # the values of a `ModelSpec`
    tie_word_embeddings: bool = True
    eos_token_id: int | None = None
    pad_token_id: int | None = None


@dataclass
class HighrankOutput(ModelOutput):
    loss: Tensor | None = None
    logits: Tensor | None = None  # (B, T, V) log-probabilities; None in training
    state: list[State] | None = None


class HighrankForCausalLM(PreTrainedModel, GenerationMixin):
    """A `LanguageModel` with the interface of transformers."""

    config_class = HighrankConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"model.head.weight": "model.backbone.embedding"}  # noqa: RUF012
    _is_stateful = True  # a state cannot be shortened, so there is no assisted generation

    def __init__(self, config: HighrankConfig) -> None:
        super().__init__(config)
        self.model = build_model(from_json(ModelSpec, config.spec), config.vocab_size)
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        """Keep the initialisation of the recipe."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: list[State] | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        logits_to_keep: int = 0,  # the last positions; 0: all
        **kwargs: Any,
    ) -> HighrankOutput:
        """Continue from `state`, or from zero. In training, `labels` give a loss and no logits are built."""
        if attention_mask is not None and not attention_mask[:, 0].all():
            raise UserError("a recurrent model reads padding as text: pad on the right.")
        if state is None:
            state = self.model.initial_state(len(input_ids))
        hidden = self.model.backbone(input_ids.t(), state)
        loss = None
        if labels is not None:
            targets = labels[:, 1:].t()
            count = (targets != IGNORE).sum() if num_items_in_batch is None else num_items_in_batch
            loss = self.model.head.nll(hidden.g[:-1], targets, ignore_index=IGNORE).sum() / count
            if self.training:
                return HighrankOutput(loss, state=hidden.state)
        log_prob = self.model.head.log_prob(hidden.g[-logits_to_keep:])
        return HighrankOutput(loss, log_prob.transpose(0, 1), hidden.state)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as other models do. A recurrent model cannot skip padding, so the prompts have equal length."""
        mask = kwargs.get("attention_mask")
        if mask is not None and not mask.all():
            raise UserError(
                "a recurrent model reads padding as text: generate from one prompt, or from prompts of equal length."
            )
        return super().generate(*args, **kwargs)  # type: ignore[misc]

    def prepare_inputs_for_generation(  # type: ignore[override]
        self, input_ids: Tensor, state: list[State] | None = None, is_first_iteration: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Pass on the whole prompt, and from then on the last token only."""
        words = input_ids if is_first_iteration or state is None else input_ids[:, -1:]
        return {"input_ids": words, "state": state, "logits_to_keep": 1}

    def _reorder_cache(self, state: list[State], rows: Tensor) -> list[State]:
        """Return the states of the hypotheses that a beam search keeps."""
        return self.model.select_rows(state, rows)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Return that `generate` should not pass a cache of keys and values."""
        return False


AutoConfig.register(HighrankConfig.model_type, HighrankConfig, exist_ok=True)
AutoModelForCausalLM.register(HighrankConfig, HighrankForCausalLM, exist_ok=True)


def from_language_model(model: LanguageModel, spec: ModelSpec, words: list[str]) -> HighrankForCausalLM:
    """Return `model`, built from `spec`, as a Hugging Face model that shares its weights."""
    eos = words.index(EOS) if EOS in words else None
    config = HighrankConfig(
        vocab_size=len(words),
        spec=to_json(spec),
        tie_word_embeddings=spec.tied,
        eos_token_id=eos,
        pad_token_id=eos,
    )
    with torch.device("meta"):
        result = HighrankForCausalLM(config)
    result.model = model
    return result.eval()


def make_tokenizer(codec: TextCodec) -> PreTrainedTokenizerFast:
    """Return a tokenizer that reads text as the corpus was read, with <eos> for every line end."""
    tokenizer = _plain_tokenizer(codec) if codec.tokenizer is None else Tokenizer.from_str(codec.tokenizer.to_str())
    unknown = unknown_id(tokenizer)
    options: dict[str, Any] = {} if unknown is None else {"unk_token": tokenizer.id_to_token(unknown)}
    if codec.eos is not None:
        steps = [normalizers.Replace("\n", EOS), tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([step for step in steps if step is not None])
        eos = AddedToken(EOS, normalized=True, special=True)  # found after the line ends were replaced
        tokenizer.add_special_tokens([eos])
        options |= {"eos_token": eos, "pad_token": eos}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="right", **options)


def _plain_tokenizer(codec: TextCodec) -> Tokenizer:
    """Return a tokenizer of words at white space, or of characters."""
    tokenizer = Tokenizer(WordLevel(codec.index, unk_token=UNK if UNK in codec.index else None))
    if codec.level == "word":  # without a decoder, words are joined by spaces
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        tokenizer.decoder = decoders.Fuse()
    return tokenizer

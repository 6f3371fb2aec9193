"""Load any Hugging Face causal language model safely.

Weights are read from safetensors only, and code that comes with a model is never run. The model is cast to float64, to
float32 where memory is short, or kept as stored where only its output layer matters.

Shapes: ids (T,); hidden states (t, D).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from highrank.errors import UserError
from highrank.evaluation.perplexity import in_eval_mode
from highrank.heads import MoSHead
from highrank.memory import require_bytes

Precision = Literal["float64", "float32", "stored"]  # of the forward pass
PART = 2**21  # characters of a text that are encoded at a time
MAX_CONTEXT = 1024  # longer contexts are not used in full: the cost of attention grows quadratically


@dataclass(frozen=True)
class HfModel:
    name: str
    model: Any  # PreTrainedModel
    tokenizer: Any
    layer: torch.nn.Linear | MoSHead  # the output layer
    context: int  # tokens per window
    weights_dtype: str  # as stored

    @property
    def weight(self) -> Tensor:
        """The (V, D) output matrix."""
        return self.layer.weight.detach()

    @property
    def bias(self) -> Tensor | None:
        return None if self.layer.bias is None else self.layer.bias.detach()

    def ends_in_softmax(self) -> bool:
        """Check whether the log-probabilities are those of softmax(H W^T + b), without a cap or a scale in between."""
        return isinstance(self.layer, torch.nn.Linear) and has_plain_logits(self.model)

    def encode(self, text: str, limit: int | None = None) -> Tensor:
        """Return the (T,) ids of a text, or of a start of it with at least `limit` ids.

        Long texts are cut at line breaks and encoded part by part, because a tokenizer needs 100 times their memory.
        """
        parts = [torch.empty(0, dtype=torch.long)]
        count = 0
        for i, part in enumerate(_parts(text)):
            ids = self.tokenizer(part, add_special_tokens=i == 0, verbose=False)["input_ids"]
            parts.append(torch.tensor(ids, dtype=torch.long))
            count += len(ids)
            if limit is not None and count >= limit:
                break
        return torch.cat(parts).to(self.weight.device)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Map (t,) ids, at most one context, to (t, V) log-probabilities, with the model's own output layer."""
        return torch.log_softmax(self.model(ids[None]).logits[0].double(), dim=-1)

    def words(self, ids: list[int]) -> list[str]:
        """Return tokens as the tokenizer writes them. Some output matrices have more rows than there are tokens."""
        words = self.tokenizer.convert_ids_to_tokens(ids)
        return [word or f"<unused-{i}>" for i, word in zip(ids, words, strict=True)]

    def hidden(self, ids: Tensor) -> Tensor:
        """Map (t,) ids, at most one context, to the (t, D) inputs of the output layer."""
        return self.model.base_model(ids[None]).last_hidden_state[0]


def _parts(text: str) -> Iterator[str]:
    """Yield parts of about `PART` characters, each up to the end of a line."""
    start = 0
    while start < len(text):
        stop = text.find("\n", start + PART) + 1 or len(text)  # find returns -1 if there is none
        yield text[start:stop]
        start = stop


def load_hf(name: str, device: torch.device, precision: Precision = "float64") -> HfModel:
    """Load a model from a local folder or by its name on the hub."""
    model, tokenizer = _load_as_stored(name)
    if model.config.model_type == "highrank":
        raise UserError(f"{name} is an export of a run of highrank: use the run's own folder.")
    layer = output_layer(model, name)
    stored = str(layer.weight.dtype).removeprefix("torch.")
    dtype = layer.weight.dtype if precision == "stored" else getattr(torch, precision)
    needed = model.num_parameters() * dtype.itemsize
    fix = "use the precision float32, or stored without a text, or a smaller model"
    require_bytes(needed, device, f"{name} in {dtype}".replace("torch.", ""), fix)
    model = model.to(device=device, dtype=dtype).eval()
    limit = getattr(model.config, "max_position_embeddings", None) or MAX_CONTEXT
    return HfModel(name, model, tokenizer, layer, min(limit, MAX_CONTEXT), stored)


def _load_as_stored(name: str) -> tuple[Any, Any]:
    """Return a model and its tokenizer, without log messages and progress bars."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    hub_logging.set_verbosity_error()
    no_code = {"trust_remote_code": False}  # without it, transformers asks on the terminal
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **no_code)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, use_safetensors=True, dtype="auto", output_loading_info=True, **no_code
        )
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")[:200]
        raise UserError(
            f"{name} is neither a folder nor a name on the hub of a causal language model with a tokenizer and weights "
            f"in safetensors ({reason})."
        ) from None
    model, loading = loaded
    _check_complete(name, model, loading)
    return model, tokenizer


def output_layer(model: Any, name: str) -> torch.nn.Linear | MoSHead:
    """Return the output layer of a model. Raise a UserError unless it is a matrix of floating-point numbers."""
    layer = model.get_output_embeddings()
    if not isinstance(layer, torch.nn.Linear | MoSHead) or not layer.weight.is_floating_point():
        kind = "no output layer" if layer is None else f"an output layer of the type {type(layer).__name__}"
        raise UserError(
            f"{name} has {kind}, but a matrix in floating point is needed: choose a causal language model whose output "
            "layer is not quantised."
        )
    return layer


def _check_complete(name: str, model: Any, loading: dict[str, Any]) -> None:
    """Raise a UserError unless the stored weights are exactly those of the model's class.

    transformers draws missing weights at random and drops unexpected ones, such as those of another head: both would be
    another model than the one that was trained.
    """
    trained_as = model.config.architectures or [type(model).__name__]
    if type(model).__name__ not in trained_as:
        raise UserError(
            f"{name} was saved by {trained_as[0]}, not by the causal language model {type(model).__name__}."
        )
    for problem in ("missing", "unexpected", "mismatched"):
        if keys := sorted(map(str, loading[f"{problem}_keys"])):
            raise UserError(
                f"the weights of {name} are not those of a {type(model).__name__}: {keys[0]} is {problem} "
                f"({len(keys)} in all)."
            )


@torch.no_grad()
@in_eval_mode
def has_plain_logits(model: Any) -> bool:
    """Check on two tokens that the logits are those of the output layer, and its input is the last hidden state."""
    layer = model.get_output_embeddings()
    seen: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _, inputs, output: seen.extend((inputs[0], output)))
    ids = torch.tensor([[0, 1]], device=model.device)
    try:
        logits = model(ids).logits
    finally:
        hook.remove()
    if len(seen) != 2:  # the layer was not called, but its weight was used in another way
        return False
    h, linear = seen
    # The second pass may differ by round-off; a scale or a norm makes a far larger difference.
    again = getattr(model.base_model(ids), "last_hidden_state", None)
    if again is None:  # Llama 4 has no base model of its own
        return False
    return torch.equal(linear, logits.to(linear.dtype)) and torch.allclose(h, again.to(h.dtype), rtol=1e-2)

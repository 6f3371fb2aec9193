"""Any causal language model of `transformers`: loading it safely, and its hidden states over a text.

Weights are read from safetensors only, and no code that comes with a model is run. The model is cast up to float64, or
its body to float32 where memory is short: the output layer is always analysed in float64.

Shapes: ids (T,); hidden states (t, D).
"""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from highrank.analysis.matrix import WINDOW
from highrank.errors import UserError

MAX_CONTEXT = 1024  # of longer ones, this much is used: attention's cost grows with its square

NO_CODE = {"trust_remote_code": False}  # said aloud: left out, transformers would ask on the terminal


@dataclass(frozen=True)
class HfModel:
    name: str
    model: Any  # PreTrainedModel
    tokenizer: Any
    weight: Tensor  # (V, D) of the output layer
    bias: Tensor | None
    context: int  # words the model sees at once
    weights_dtype: str  # as stored

    @property
    def device(self) -> torch.device:
        return self.weight.device

    def log_prob(self, ids: Tensor) -> Tensor:
        """(t,) ids -> (t, V) log-probabilities by the model's own output, whatever that does; one context at most."""
        return torch.log_softmax(self.model(ids[None]).logits[0].double(), dim=-1)

    def hidden(self, ids: Tensor) -> Tensor:
        """(t,) ids -> (t, D), what the output layer is given."""
        return self.model.base_model(ids[None]).last_hidden_state[0]


def load_hf(name: str, device: torch.device, precision: str = "float64") -> HfModel:
    """A local folder or a name on the hub."""
    transformers = _transformers()
    try:
        config = transformers.AutoConfig.from_pretrained(name, **NO_CODE)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **NO_CODE)
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            name, config=config, use_safetensors=True, dtype="auto", output_loading_info=True, **NO_CODE
        )
    except SafetensorError as error:
        raise UserError(f"the weights of {name} are damaged ({error}): get them again.") from None
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UserError(_loading_problem(name, error)) from None
    stored = str(next(model.parameters()).dtype).removeprefix("torch.")
    layer = model.get_output_embeddings()
    if not isinstance(layer, torch.nn.Linear) or any(_is_of(model, key, layer) for key in loading["missing_keys"]):
        raise UserError(f"{name} has no output layer, so it gives no logits: choose a causal language model.")
    model = model.to(device=device, dtype=getattr(torch, precision)).eval()
    limit = getattr(config, "max_position_embeddings", None) or MAX_CONTEXT
    return HfModel(name, model, tokenizer, layer.weight, layer.bias, min(limit, MAX_CONTEXT), stored)


def parameter_bytes(name: str, precision: str) -> int | None:
    """What the model's weights will take, known before they are loaded; None where the config does not say."""
    transformers = _transformers()
    try:
        config = transformers.AutoConfig.from_pretrained(name, **NO_CODE)
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = transformers.AutoModelForCausalLM.from_config(config, **NO_CODE)
    except Exception:  # some models cannot be built without storage; loading them will tell what is wrong
        return None
    return sum(p.numel() for p in model.parameters()) * (8 if precision == "float64" else 4)


def encode(model: HfModel, text: str) -> Tensor:
    """The text's ids, (T,)."""
    ids = torch.tensor(model.tokenizer(text, verbose=False)["input_ids"], dtype=torch.long, device=model.device)
    if len(ids) and int(ids.max()) >= len(model.weight):
        raise UserError(f"{model.name}'s tokenizer knows more words than its output layer: they do not match.")
    return ids


@torch.no_grad()
def hidden_blocks(model: HfModel, ids: Tensor) -> Iterator[Tensor]:
    """The hidden state after every token, in order: windows of the model's context that move on by half of it.

    So each state has seen at least half a context, but for those at the start of the text.
    """
    for start, skip in _windows(len(ids), model.context):
        yield model.hidden(ids[start : start + model.context])[skip:]


@torch.no_grad()
def log_prob_blocks(model: HfModel, ids: Tensor) -> Iterator[Tensor]:
    """The same for log-probabilities, by the model's own output."""
    for start, skip in _windows(len(ids), model.context):
        yield from model.log_prob(ids[start : start + model.context])[skip:].split(WINDOW)


def _windows(tokens: int, context: int) -> Iterator[tuple[int, int]]:
    """Where each window starts, and how many of its rows have been had before."""
    step = max(1, context // 2)
    yield 0, 0
    for start in range(step, tokens, step):
        if start + context - step >= tokens:
            return
        yield start, context - step


@torch.no_grad()
def is_plain_softmax(model: HfModel, ids: Tensor) -> bool:
    """Whether its log-probabilities are those of softmax(H W^T + b), with nothing in between (a cap, a scale)."""
    ids = ids[: min(64, model.context)]
    h, bias = model.hidden(ids).double(), None if model.bias is None else model.bias.double()
    ours = torch.log_softmax(torch.nn.functional.linear(h, model.weight.double(), bias), dim=-1)
    # Two orders of adding up differ by round-off; a cap or a scale does by far more.
    tolerance = 1e-6 if model.weight.dtype == torch.float64 else 1e-2
    return bool((ours - model.log_prob(ids)).abs().max() < tolerance)


@torch.no_grad()
def check_causal(model: HfModel, ids: Tensor) -> None:
    """A model that sees the words it is to predict has no next-word distributions to speak of."""
    ids = ids[: min(16, model.context)]
    half = len(ids) // 2
    difference = (model.log_prob(ids)[:half] - model.log_prob(ids[:half])).abs().max() if half else torch.zeros(())
    if difference > 1e-4:
        raise UserError(f"{model.name} looks at the words after the one it predicts: it is no causal language model.")


def _transformers() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import huggingface_hub
            import transformers
    except ImportError:
        raise UserError("--hf needs transformers: install it with pip install 'highrank[hf]'.") from None
    transformers.utils.logging.set_verbosity_error()
    huggingface_hub.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _is_of(model: Any, key: str, layer: torch.nn.Linear) -> bool:
    """Whether a parameter that the file lacks, and that was therefore drawn at random, is the output layer's."""
    with contextlib.suppress(AttributeError):
        return model.get_parameter(key) is layer.weight
    return False


def _loading_problem(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")[:200]
    if Path(name).is_dir():
        return (
            f"{name} holds no causal language model that can be read here, with a tokenizer and weights in safetensors "
            f"({reason})."
        )
    return (
        f"there is no folder {name}, and no model of that name could be had from the hub ({reason}): check the name "
        "and the network, or give the folder of a downloaded model."
    )

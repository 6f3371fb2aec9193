"""Any causal language model of `transformers`: loading it safely, and analysing it on a text.

Weights are read from safetensors only, and code that comes with a model is never run. The model is cast to float64, or
its body to float32 where memory is short; the output layer is always analysed in float64.

Shapes: ids (T,); hidden states (t, D).
"""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from highrank.analysis.matrix import CONTEXTS, WINDOW, analyze_rows, context_count, needed_bytes
from highrank.analysis.record import ModelAnalysis, summarize, summarize_softmax
from highrank.analysis.softmax import analyze_softmax
from highrank.errors import UserError
from highrank.memory import require_bytes
from highrank.progress import OnStage, no_stages

MAX_CONTEXT = 1024  # longer contexts are not used in full: the cost of attention grows quadratically

NO_CODE = {"trust_remote_code": False}  # without it, transformers asks on the terminal


@dataclass(frozen=True)
class HfModel:
    name: str
    model: Any  # PreTrainedModel
    tokenizer: Any
    weight: Tensor  # (V, D) of the output layer
    bias: Tensor | None
    context: int  # tokens per window
    weights_dtype: str  # as stored

    @property
    def device(self) -> torch.device:
        return self.weight.device

    def log_prob(self, ids: Tensor) -> Tensor:
        """Map (t,) ids, at most one context, to (t, V) log-probabilities, with the model's own output layer."""
        return torch.log_softmax(self.model(ids[None]).logits[0].double(), dim=-1)

    def hidden(self, ids: Tensor) -> Tensor:
        """Map (t,) ids, at most one context, to the (t, D) inputs of the output layer."""
        return self.model.base_model(ids[None]).last_hidden_state[0]


def analyze_hf(
    model: HfModel,
    ids: Tensor,  # (T,)
    *,
    projection: int | None = None,
    contexts: int = CONTEXTS,
    seed: int = 0,
    on_stage: OnStage = no_stages,
) -> ModelAnalysis:
    """Analyse a model on a text: exactly, from its factors, if it ends in a plain softmax, and by its rows otherwise.

    `projection` is only used for the rows: the factors are exact and small for any vocabulary.
    """
    check_causal(model, ids)
    name = Path(model.name).name
    if is_plain_softmax(model, ids):
        _check_softmax_memory(model, len(ids), contexts)
        softmax = analyze_softmax(
            hidden_blocks(model, ids),
            model.weight,
            model.bias,
            tokens=len(ids),
            ids=ids,
            contexts=contexts,
            seed=seed,
            on_stage=on_stage,
        )
        summary = summarize_softmax(softmax, name)
    else:
        if model.weight.dtype != torch.float64:
            raise UserError(
                f"{model.name} does not end in a plain softmax, and the round-off of float32 would look like rank: "
                "use the precision float64."
            )
        blocks = log_prob_blocks(model, ids)
        result = analyze_rows(blocks, ids, projection=projection, contexts=contexts, seed=seed, on_stage=on_stage)
        summary = summarize(result, name=name, head="other", n_components=1, embed_dim=model.weight.shape[1])
    precision = str(model.weight.dtype).removeprefix("torch.")
    return replace(summary, weights_dtype=model.weights_dtype, precision=precision, context=model.context)


def load_hf(name: str, device: torch.device, precision: str = "float64") -> HfModel:
    """Load a model from a local folder or by its name on the hub."""
    transformers = _transformers()
    needed = parameter_bytes(name, precision) or 0
    require_bytes(needed, device, f"{name} in {precision}", "use the precision float32, or a smaller model")
    try:
        config = transformers.AutoConfig.from_pretrained(name, **NO_CODE)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **NO_CODE)
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            name, config=config, use_safetensors=True, dtype="auto", output_loading_info=True, **NO_CODE
        )
    except SafetensorError as error:
        raise UserError(f"the weights of {name} are damaged ({error}): download them again.") from None
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UserError(_loading_problem(name, error)) from None
    stored = str(next(model.parameters()).dtype).removeprefix("torch.")
    layer = model.get_output_embeddings()
    if not isinstance(layer, torch.nn.Linear) or any(_is_weight(model, key, layer) for key in loading["missing_keys"]):
        raise UserError(f"{name} has no output layer: choose a causal language model.")
    model = model.to(device=device, dtype=getattr(torch, precision)).eval()
    limit = getattr(config, "max_position_embeddings", None) or MAX_CONTEXT
    return HfModel(name, model, tokenizer, layer.weight, layer.bias, min(limit, MAX_CONTEXT), stored)


def parameter_bytes(name: str, precision: str) -> int | None:
    """Return the size of a model's weights before they are loaded, or None where the config does not determine it."""
    transformers = _transformers()
    try:
        config = transformers.AutoConfig.from_pretrained(name, **NO_CODE)
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = transformers.AutoModelForCausalLM.from_config(config, **NO_CODE)
    except Exception:  # some models cannot be built on the meta device; `load_hf` reports what is wrong with the others
        return None
    return sum(p.numel() for p in model.parameters()) * (8 if precision == "float64" else 4)


def encode(model: HfModel, text: str) -> Tensor:
    """Return the (T,) ids of a text."""
    ids = torch.tensor(model.tokenizer(text, verbose=False)["input_ids"], dtype=torch.long, device=model.device)
    if len(ids) and int(ids.max()) >= len(model.weight):
        raise UserError(f"the tokenizer of {model.name} has more words than its output layer: they do not match.")
    return ids


@torch.no_grad()
def hidden_blocks(model: HfModel, ids: Tensor) -> Iterator[Tensor]:
    """Yield the hidden state after every token, in order, from windows of one context that advance by half of it.

    So each state has seen at least half a context, except at the start of the text.
    """
    for start, skip in _windows(len(ids), model.context):
        yield model.hidden(ids[start : start + model.context])[skip:]


@torch.no_grad()
def log_prob_blocks(model: HfModel, ids: Tensor) -> Iterator[Tensor]:
    """Yield the log-probabilities after every token, from the same windows."""
    for start, skip in _windows(len(ids), model.context):
        yield from model.log_prob(ids[start : start + model.context])[skip:].split(WINDOW)


def _windows(tokens: int, context: int) -> Iterator[tuple[int, int]]:
    """Yield where each window starts, and how many of its rows an earlier window has covered."""
    step = max(1, context // 2)
    yield 0, 0
    for start in range(step, tokens, step):
        if start + context - step >= tokens:
            return
        yield start, context - step


@torch.no_grad()
def is_plain_softmax(model: HfModel, ids: Tensor) -> bool:
    """Check whether the log-probabilities are those of softmax(H W^T + b), without a cap or a scale in between."""
    ids = ids[: min(64, model.context)]
    h = model.hidden(ids).double()
    bias = None if model.bias is None else model.bias.double()
    plain = torch.log_softmax(torch.nn.functional.linear(h, model.weight.double(), bias), dim=-1)
    # Different orders of summation differ by round-off, a cap or a scale by far more.
    tolerance = 1e-6 if model.weight.dtype == torch.float64 else 1e-2
    return bool((plain - model.log_prob(ids)).abs().max() < tolerance)


@torch.no_grad()
def check_causal(model: HfModel, ids: Tensor) -> None:
    """Raise a UserError if a prediction changes with the tokens after it."""
    ids = ids[: min(16, model.context)]
    half = len(ids) // 2
    if half and (model.log_prob(ids)[:half] - model.log_prob(ids[:half])).abs().max() > 1e-4:
        raise UserError(f"{model.name} uses the words after the one it predicts: choose a causal language model.")


def _transformers() -> Any:
    """Import transformers without its warnings, log messages and progress bars."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import huggingface_hub
            import transformers
    except ImportError:
        raise UserError("transformers is not installed: install it with pip install 'highrank[hf]'.") from None
    transformers.utils.logging.set_verbosity_error()
    huggingface_hub.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _is_weight(model: Any, key: str, layer: torch.nn.Linear) -> bool:
    """Check whether a parameter missing from the file, and therefore drawn at random, is the output layer's weight."""
    with contextlib.suppress(AttributeError):
        return model.get_parameter(key) is layer.weight
    return False


def _loading_problem(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")[:200]
    if Path(name).is_dir():
        return f"{name} is not a causal language model with a tokenizer and weights in safetensors ({reason})."
    return f"there is no folder {name}, and the hub gave no model of that name ({reason}): check name and network."


def _check_softmax_memory(model: HfModel, tokens: int, contexts: int) -> None:
    vocabulary, dim = model.weight.shape
    contexts = context_count(tokens, vocabulary, contexts)
    # As with a projection onto D + 2 columns, and two copies of the output matrix for its QR.
    needed = needed_bytes(tokens, vocabulary, dim + 2, contexts, WINDOW) + 2 * 8 * vocabulary * (dim + 2)
    task = f"the analysis of {model.name}, besides the model,"
    require_bytes(needed, model.device, task, "use fewer contexts, or the precision float32")

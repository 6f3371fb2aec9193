"""Any causal language model of `transformers`: loading it safely, and analysing it on a text.

Weights are read from safetensors only, and code that comes with a model is never run. The model is cast to float64, to
float32 where memory is short, or kept as stored where only its output layer matters, which is analysed in float64.

Shapes: ids (T,); hidden states (t, D).
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor

from highrank.analysis.matrix import CONTEXTS, analyze_rows
from highrank.analysis.record import Analysis
from highrank.analysis.softmax import analyze_softmax
from highrank.errors import UserError
from highrank.heads import MoSHead
from highrank.memory import require_bytes
from highrank.progress import OnStage, no_stages

Precision = Literal["float64", "float32", "stored"]  # of the forward pass
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

    def encode(self, text: str) -> Tensor:
        """Return the (T,) ids of a text."""
        ids = self.tokenizer(text, verbose=False)["input_ids"]
        return torch.tensor(ids, dtype=torch.long, device=self.weight.device)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Map (t,) ids, at most one context, to (t, V) log-probabilities, with the model's own output layer."""
        return torch.log_softmax(self.model(ids[None]).logits[0].double(), dim=-1)

    def words(self, ids: list[int]) -> list[str]:
        """Return tokens as the tokenizer writes them."""
        words: list[str] = self.tokenizer.convert_ids_to_tokens(ids)
        return words

    def hidden(self, ids: Tensor) -> Tensor:
        """Map (t,) ids, at most one context, to the (t, D) inputs of the output layer."""
        return self.model.base_model(ids[None]).last_hidden_state[0]


@torch.no_grad()
def analyze_hf(
    model: HfModel,
    ids: Tensor,  # (T,)
    *,
    projection: int | None = None,
    contexts: int = CONTEXTS,
    seed: int = 0,
    on_stage: OnStage = no_stages,
) -> Analysis:
    """Analyse a model on a text: exactly, from its factors, if it ends in a plain softmax, and by its rows otherwise.

    `projection` is only used for the rows: the factors are exact and small for any vocabulary.
    """
    check_causal(model, ids)
    if is_plain_softmax(model, ids):
        states: list[Tensor] = []
        for block in in_windows(model.hidden, ids, model.context):
            states.append(block)
            on_stage("hidden states", sum(map(len, states)), len(ids))
        hidden = torch.cat(states)
        result = analyze_softmax(
            hidden, model.weight, model.bias, ids=ids, contexts=contexts, seed=seed, on_stage=on_stage
        )
    else:
        if model.weight.dtype != torch.float64:
            raise UserError(
                f"{model.name} does not end in a plain softmax, and the round-off of float32 would look like rank: "
                "use the precision float64."
            )
        rows = in_windows(model.log_prob, ids, model.context)
        result = analyze_rows(rows, ids, projection=projection, contexts=contexts, seed=seed, on_stage=on_stage)
    return replace(
        result,
        name=Path(model.name).name,
        embed_dim=model.weight.shape[1],
        weights_dtype=model.weights_dtype,
        precision=str(model.weight.dtype).removeprefix("torch."),
        context=model.context,
    )


def load_hf(name: str, device: torch.device, precision: Precision = "float64") -> HfModel:
    """Load a model from a local folder or by its name on the hub."""
    transformers = _transformers()
    no_code = {"trust_remote_code": False}  # without it, transformers asks on the terminal
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **no_code)
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            name, use_safetensors=True, dtype="auto", output_loading_info=True, **no_code
        )
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")[:200]
        raise UserError(
            f"{name} is neither a folder nor a name on the hub of a causal language model with a tokenizer and weights "
            f"in safetensors ({reason})."
        ) from None
    _check_complete(name, model, loading)
    layer = output_layer(model, name)
    stored = str(layer.weight.dtype).removeprefix("torch.")
    dtype = layer.weight.dtype if precision == "stored" else getattr(torch, precision)
    needed = model.num_parameters() * dtype.itemsize
    fix = "use the precision float32, or stored without a text, or a smaller model"
    require_bytes(needed, device, f"{name} in {dtype}".replace("torch.", ""), fix)
    model = model.to(device=device, dtype=dtype).eval()
    limit = getattr(model.config, "max_position_embeddings", None) or MAX_CONTEXT
    return HfModel(name, model, tokenizer, layer, min(limit, MAX_CONTEXT), stored)


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


def in_windows(predict: Callable[[Tensor], Tensor], ids: Tensor, context: int) -> Iterator[Tensor]:
    """Yield a model's output for every token, in order, from windows of one context that advance by half of it.

    So each token has at least half a context before it, except at the start of the text.
    """
    step = max(1, context // 2)
    yield predict(ids[:context])
    for done in range(context, len(ids), step):
        start = done - (context - step)
        yield predict(ids[start : start + context])[context - step :]


@torch.no_grad()
def is_plain_softmax(model: HfModel, ids: Tensor) -> bool:
    """Check whether the log-probabilities are those of softmax(H W^T + b), without a cap or a scale in between."""
    if isinstance(model.layer, MoSHead):
        return False
    ids = ids[: min(64, model.context)]
    h = model.hidden(ids).double()
    bias = None if model.bias is None else model.bias.double()
    plain = torch.log_softmax(torch.nn.functional.linear(h, model.weight.double(), bias), dim=-1)
    # Different orders of summation differ by round-off, a cap or a scale by far more.
    round_off = {torch.float64: 1e-6, torch.float32: 1e-2}
    tolerance = round_off.get(model.weight.dtype, 0.02 * (plain.max() - plain.min()).item())  # 5 eps of bfloat16
    return bool((plain - model.log_prob(ids)).abs().max() < tolerance)


@torch.no_grad()
def check_causal(model: HfModel, ids: Tensor) -> None:
    """Raise a UserError if a prediction changes with the tokens after it."""
    ids = ids[: min(16, model.context)]
    half = len(ids) // 2
    changed = torch.cat([ids[:half], (ids[half:] + 1) % len(model.weight)])
    if half and (model.log_prob(ids)[:half] - model.log_prob(changed)[:half]).abs().max() > 1e-4:
        raise UserError(f"{model.name} uses the words after the one it predicts: choose a causal language model.")


def _transformers() -> Any:
    """Import transformers without its warnings, log messages and progress bars."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import huggingface_hub
            import transformers

            import highrank.hf  # noqa: F401  (registers the models that `highrank.hf.convert` made)
    except ImportError:
        raise UserError("transformers is not installed: install it with pip install 'highrank[hf]'.") from None
    transformers.utils.logging.set_verbosity_error()
    huggingface_hub.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers

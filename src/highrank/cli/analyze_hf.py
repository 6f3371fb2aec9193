"""`highrank analyze --hf`: the same questions for any causal language model of transformers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from highrank.cli.analyze_options import AnalyzeOptions
from highrank.cli.console import note, progress
from highrank.errors import UserError

if TYPE_CHECKING:
    import torch

    from highrank.analysis import SoftmaxAnalysis
    from highrank.analysis.hf import HfModel


def analyze_hf(name: str, text: Path, precision: str, options: AnalyzeOptions) -> dict[str, Any]:
    """The record of an analysis: what `analysis.json` holds, for one model."""
    from highrank.analysis.hf import check_causal, encode, is_plain_softmax, load_hf
    from highrank.runs.provenance import provenance

    words = _read(text)
    note(f"{name}: loading")
    _check_model_memory(name, precision, options.device)
    model = load_hf(name, options.device, precision)
    ids = encode(model, words)
    ids = ids[: options.count(len(ids), str(text))]
    check_causal(model, ids)
    route = _softmax if is_plain_softmax(model, ids) else _other
    return {
        "kind": "analysis",
        "corpus": text.name,
        "split": None,
        "tokens": len(ids),
        "vocabulary": len(model.weight),
        "seed": options.seed,
        "models": [
            {
                "name": Path(name).name,
                "run": None,
                "recipe": None,
                "n_components": 1,
                "embed_dim": model.weight.shape[1],
                "epochs": None,
                "valid_ppl": None,
                "test_ppl": None,
                "weights_dtype": model.weights_dtype,
                "precision": precision,
                "context": model.context,
                **route(model, ids, options),
            }
        ],
        "provenance": provenance(options.device),
    }


def _softmax(model: "HfModel", ids: "torch.Tensor", options: AnalyzeOptions) -> dict[str, Any]:
    from highrank.analysis import analyze_softmax
    from highrank.analysis.hf import hidden_blocks

    if options.projection is not None:
        raise UserError("--projection is not needed here: a softmax's spectrum is exact at any vocabulary; drop it.")
    _check_softmax_memory(len(ids), model, options)
    with progress() as on_stage:
        found = analyze_softmax(
            hidden_blocks(model, ids), model.weight, model.bias, tokens=len(ids), ids=ids,
            contexts=options.contexts, seed=options.seed, on_progress=on_stage,
        )  # fmt: skip
    return {"head": "softmax", "rank_bound": found.rank_bound, **found.analysis.to_json(), **_use(found)}


def _other(model: "HfModel", ids: "torch.Tensor", options: AnalyzeOptions) -> dict[str, Any]:
    """Its logits are no matrix product (capped, scaled, mixed): the rows themselves are reduced, as for runs."""
    from highrank.analysis.hf import log_prob_blocks
    from highrank.analysis.matrix import analyze_rows

    if model.weight.dtype != model.weight.double().dtype:
        raise UserError(
            f"{model.name} does not end in a plain softmax, and float32 round-off would look like rank: "
            "use --precision float64."
        )
    with progress() as on_stage:
        result = analyze_rows(
            log_prob_blocks(model, ids), ids, projection=options.projection,
            contexts=options.contexts, seed=options.seed, on_progress=on_stage,
        )  # fmt: skip
    return {"head": "other", "rank_bound": min(result.tokens, result.vocabulary), **result.to_json()}


def _use(found: "SoftmaxAnalysis") -> dict[str, Any]:
    """The output matrix, and how much of what it offers the model uses."""
    from highrank.analysis.matrix import spectrum_json
    from highrank.analysis.rank import effective_rank, numerical_rank

    output, varying = found.output_values, found.varying_values
    return {
        "output_matrix": {
            "rank": numerical_rank(output, found.analysis.vocabulary, found.embed_dim),
            "effective_rank": effective_rank(output),
            "spectrum": spectrum_json(output),
        },
        "varying": {
            "effective_rank": effective_rank(varying),
            "directions_90": found.directions(0.9),
            "directions_99": found.directions(0.99),
            "spectrum": spectrum_json(varying),
        },
    }


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"there is no text at {path}: name a UTF-8 text file with --text.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text: convert it first.") from None
    if not text.strip():
        raise UserError(f"{path} is empty: there is nothing to analyse.")
    return text


def _check_model_memory(name: str, precision: str, device: "torch.device") -> None:
    from highrank.analysis.hf import parameter_bytes
    from highrank.analysis.memory import GIB, free_bytes

    needed, free = parameter_bytes(name, precision), free_bytes(device)
    if needed and free is not None and needed > free:
        way_out = "use --precision float32, or a smaller model" if precision == "float64" else "choose a smaller model"
        raise UserError(
            f"{name} needs about {needed / GIB:.1f} GiB in {precision} and {free / GIB:.1f} are free: {way_out}."
        )


def _check_softmax_memory(tokens: int, model: "HfModel", options: AnalyzeOptions) -> None:
    from highrank.analysis.matrix import WINDOW, context_count
    from highrank.analysis.memory import GIB, free_bytes, needed_bytes

    vocabulary, dim = model.weight.shape
    contexts = context_count(tokens, vocabulary, options.contexts)
    # The output matrix with two more columns takes the projection's place; its QR needs two copies.
    needed = needed_bytes(tokens, vocabulary, dim + 2, contexts, WINDOW) + 2 * 8 * vocabulary * (dim + 2)
    free = free_bytes(options.device)
    if free is not None and needed > free:
        raise UserError(
            f"the analysis of {model.name} needs about {needed / GIB:.1f} GiB beside the model and {free / GIB:.1f} "
            "are free: lower --contexts, or use --precision float32."
        )

"""`highrank analyze RUN...`: trained runs of one corpus, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import highrank
from highrank.cli.analyze_options import AnalyzeOptions
from highrank.cli.console import note, progress
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.data.corpus import Corpus


def analyze_runs(runs: list[Path], split: str, data_dir: Path | None, options: AnalyzeOptions) -> dict[str, Any]:
    """The record of an analysis: what `analysis.json` holds."""
    from highrank.runs.provenance import provenance

    corpus = _one_corpus(runs, data_dir)
    ids = corpus.splits[split]
    ids = ids[: options.count(len(ids), split)]
    _check_memory(len(ids), corpus.vocab_size, options)
    return {
        "kind": "analysis",
        "corpus": Path(corpus.name).name,
        "corpus_fingerprint": corpus.fingerprint,
        "split": split,
        "tokens": len(ids),
        "vocabulary": corpus.vocab_size,
        "seed": options.seed,
        "models": [_analyze_run(run, ids, options) for run in runs],
        "provenance": provenance(options.device),
    }


def _one_corpus(runs: list[Path], data_dir: Path | None) -> "Corpus":
    from highrank.runs.folder import run_corpus

    first, *others = [run_corpus(run, data_dir) for run in runs]
    for run, other in zip(runs[1:], others, strict=True):
        if other.fingerprint != first.fingerprint:
            raise UserError(f"{runs[0]} and {run} were trained on different text: analyse them one at a time.")
    return first


def _check_memory(tokens: int, vocabulary: int, options: AnalyzeOptions) -> None:
    from highrank.analysis.matrix import WINDOW, context_count
    from highrank.analysis.memory import check_memory

    projection = options.projection
    if projection is not None and projection >= vocabulary:
        raise UserError(f"--projection must be below the vocabulary's {vocabulary:,} words, got {projection:,}.")
    contexts = context_count(tokens, vocabulary, options.contexts)
    check_memory(tokens, vocabulary, projection, contexts, WINDOW, options.device)


def _analyze_run(folder: Path, ids: Any, options: AnalyzeOptions) -> dict[str, Any]:
    from highrank.analysis import analyze, carrying_state

    model, words, recipe = highrank.load(folder, options.device)
    note(f"{folder}:")
    with progress() as on_stage:
        result = analyze(
            carrying_state(model.double()),
            ids.to(options.device),
            projection=options.projection,
            contexts=options.contexts,
            seed=options.seed,
            on_progress=on_stage,
        )
    head, dim = recipe.model.head, recipe.model.embed_dim
    full = min(len(ids), len(words))
    return {
        "name": folder.resolve().name,
        "run": str(folder),
        "recipe": recipe.name,
        "head": head,
        "n_components": recipe.model.n_components,
        "embed_dim": dim,
        **_how_trained(folder),
        "rank_bound": full if head == "mos" else min(full, dim + 2),
        **result.to_json(),
    }


def _how_trained(folder: Path) -> dict[str, Any]:
    from highrank.runs.checkpoint import load_progress
    from highrank.runs.folder import Run

    run = Run(folder)
    summary = run.summary() or {}
    epochs = summary.get("epochs")
    if epochs is None and run.checkpoint_file.exists():  # imported, or cut off
        epochs = load_progress(folder).epoch
    return {"epochs": epochs, "valid_ppl": summary.get("valid_ppl"), "test_ppl": summary.get("test_ppl")}

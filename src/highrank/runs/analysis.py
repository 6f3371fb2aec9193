"""Analyse trained runs, and read and write the analysis record.

For example:

    record = highrank.analyze(["runs/ptb-softmax", "runs/ptb-mos"])
    record.models[0].rank, record.models[0].kld.mean
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from highrank.analysis import Analysis, analyze, carrying_state
from highrank.analysis.matrix import Options, default_rows
from highrank.analysis.record import AnalysisRecord, thin_spectrum
from highrank.device import find_device
from highrank.errors import UserError
from highrank.files import AnyPath, write_json
from highrank.progress import OnStage, no_stages
from highrank.runs import checkpoint as checkpoints
from highrank.runs.corpora import run_corpus
from highrank.runs.folder import Run
from highrank.runs.provenance import provenance
from highrank.runs.record import read_summary
from highrank.runs.text_model import TextModel, load
from highrank.schema import read_as, to_json

CPU_TOKENS = 20_000  # read on a CPU by default: all of Penn Treebank takes tens of minutes there


def analyze_runs(
    runs: AnyPath | Sequence[AnyPath],
    split: str = "test",
    *,
    tokens: int | None = None,
    data_dir: AnyPath | None = None,
    device: str | torch.device = "auto",
    on_stage: OnStage = no_stages,
    **options: Unpack[Options],
) -> AnalysisRecord:
    """Measure rank, spectrum and pairwise KLD of the best model of each run, all trained on the same corpus.

    Reads at most `tokens` tokens from the start of the split; `default_tokens` says how many by default. The options
    are `contexts` (5,000) and `seed` (0).
    """
    device = find_device(device)
    paths = [Path(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    if not paths:
        raise UserError("there is no run to analyse: name at least one run folder.")
    corpus, *others = [run_corpus(path, data_dir) for path in paths]
    for path, other in zip(paths[1:], others, strict=True):
        if other.fingerprint != corpus.fingerprint:
            raise UserError(f"{paths[0]} and {path} were trained on different texts: analyse them one at a time.")
    for path in paths:  # before the first analysis, which may take minutes
        Run(path).require_weights()
    if tokens is None:
        tokens = default_tokens(device, default_rows(corpus.vocab_size))
    ids = first_tokens(corpus.ids(split, tokens), tokens, split).to(device)
    return AnalysisRecord(
        corpus=Path(corpus.name).name,
        corpus_fingerprint=corpus.fingerprint,
        split=split,
        tokens=len(ids),
        vocabulary=corpus.vocab_size,
        seed=options.get("seed", 0),
        models=[analyze_run(load(path, device), ids, on_stage, **options) for path in paths],
        provenance=provenance(device),
    )


def analyze_run(loaded: TextModel, ids: Tensor, on_stage: OnStage, **options: Unpack[Options]) -> Analysis:
    """Analyse the best model of a run, in float64, on the ids of a text."""
    run = loaded.run
    spec = loaded.recipe.model

    def on_run_stage(stage: str, done: int, total: int | None) -> None:
        on_stage(f"{run.folder}: {stage}", done, total)

    result = analyze(carrying_state(loaded.model.double()), ids, on_stage=on_run_stage, **options)
    bound = result.rank_bound
    embed_dim = loaded.model.head.weight.shape[1]  # differs from the recipe's in an untied softmax
    if spec.head != "mos":  # D from the context vectors, one from the bias, one from the normaliser
        bound = min(bound, embed_dim + 2)
    scores = read_summary(run)  # None for an imported or interrupted run
    return replace(
        result,
        name=run.folder.resolve().name,
        run=str(run.folder),
        recipe=loaded.recipe.name,
        head=spec.head,
        n_components=spec.n_components,
        embed_dim=embed_dim,
        epochs=checkpoints.read(run.folder).state.epoch,
        valid_ppl=None if scores is None else scores.valid_ppl,
        test_ppl=None if scores is None else scores.test_ppl,
        rank_bound=bound,
        spectrum=thin_spectrum(result.spectrum),
    )


def read_analysis(path: Path) -> AnalysisRecord:
    """Read an analysis record."""
    return read_as(AnalysisRecord, path, "analysis", "recreate it with 'highrank analyze'")


def write_analysis(path: Path, record: AnalysisRecord) -> None:
    write_json(path, to_json(record))


def default_tokens(device: torch.device, rows: int | None) -> int | None:
    """Return how many tokens to read by default, given a limit on the rows of log-probabilities; None: all."""
    limits = [CPU_TOKENS if device.type == "cpu" else None, rows]
    return min((limit for limit in limits if limit is not None), default=None)


def first_tokens(ids: Tensor, count: int | None, source: str) -> Tensor:
    """Return at most `count` ids. Raise a UserError if they are too few to analyse."""
    if count is not None and count < 2:
        raise UserError(f"an analysis needs at least 2 tokens, not {count}.")
    ids = ids[:count]
    if len(ids) < 2:
        raise UserError(f"{source} has {len(ids)} tokens, but an analysis needs at least 2: use more text.")
    return ids

"""Compare two run folders step by step; `analysis/compare.py` has the method.

For example:

    comparison = highrank.compare("runs/ptb-mos", "runs/ptb-moc", n=10)
    comparison.a_ahead[0].a.top, comparison.a_ahead[0].b.top, comparison.by_frequency
"""

from functools import partial
from pathlib import Path

import torch

from highrank.analysis.compare import Comparison, check_request, compare
from highrank.errors import UserError
from highrank.files import AnyPath
from highrank.progress import OnStage, no_stages
from highrank.runs.corpora import run_corpus
from highrank.runs.disk_cache import cached_reading
from highrank.runs.folder import Run, display_names
from highrank.runs.text_model import load


def compare_runs(
    a: AnyPath,
    b: AnyPath,
    *,
    split: str = "test",
    n: int = 5,
    top: int = 5,
    contains: str | None = None,
    data_dir: AnyPath | None = None,
    device: str | torch.device = "auto",
    on_stage: OnStage = no_stages,
) -> Comparison:
    """Compare the best models of two runs step by step; `analysis.compare.compare` explains the options.

    Their first passes over the split are cached, so the next comparison is quick.
    """
    runs = Run(Path(a)), Run(Path(b))
    check_comparable(*runs)
    corpus = run_corpus(runs[0].folder, data_dir)
    check_request(corpus, split, contains)
    name_a, name_b = display_names([run.folder for run in runs])
    model_a = load(runs[0].folder, device).model
    model_b = load(runs[1].folder, device).model
    ids = corpus.ids(split)
    reading_a = cached_reading(model_a, ids, partial(on_stage, f"{name_a} reads {split}"))
    reading_b = cached_reading(model_b, ids, partial(on_stage, f"{name_b} reads {split}"))
    return compare(
        model_a, model_b, corpus, (reading_a, reading_b), split, names=(name_a, name_b), n=n, top=top,
        contains=contains, on_stage=on_stage,
    )  # fmt: skip


def check_comparable(a: Run, b: Run) -> None:
    """Raise a UserError unless the two runs were trained on the same text with the same vocabulary."""
    if a.folder.resolve() == b.folder.resolve():
        raise UserError(f"{a.folder} and {b.folder} are the same run: name two.")
    if a.info().corpus_fingerprint != b.info().corpus_fingerprint:
        specs = [run.language_recipe().data for run in (a, b)]
        corpora = " and ".join(f"{spec.corpus} ({spec.level} level)" for spec in specs)
        raise UserError(f"{a.folder} and {b.folder} were trained on different texts, {corpora}.")
    if a.words() != b.words():
        raise UserError(f"{a.folder} and {b.folder} have different vocabularies.")

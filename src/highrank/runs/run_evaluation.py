"""The perplexity of a run on a split of its corpus: `highrank.evaluate`."""

import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from highrank.device import find_device
from highrank.errors import UserError
from highrank.evaluation.perplexity import Evaluation, evaluate
from highrank.evaluation.score import bits_per_character
from highrank.evaluation.tune import OnPoint, Settings, Tuning
from highrank.files import AnyPath, output_file, write_bytes
from highrank.progress import OnStage, no_stages
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.runs.adaptation import PUBLISHED, AdaptiveEvaluation
from highrank.runs.corpora import run_corpus
from highrank.runs.text_model import load

SETTINGS = {"plain": (), "dynamic": ("lr", "lamb", "epsilon", "segment"), "cache": ("window", "theta", "lamb")}
COUNTS = ("batch_size", "tune_tokens", "segment", "window")  # whole numbers of at least 1
MAY_BE_ZERO = ("lr", "theta")
CPU_TUNE_TOKENS = 5_000  # a search for settings of dynamic evaluation makes about twenty passes over its text


@dataclass(frozen=True)
class RunEvaluation:
    """How well a run predicts a split of its corpus: the result of `evaluate_run`."""

    run: str
    split: str
    batch_size: int
    tokens: int  # predicted
    nll: float  # nats per token
    perplexity: float
    bits_per_character: float | None = None  # of a model of characters
    bits_per_byte: float | None = None  # of a model of BPE pieces
    dynamic: DynamicSettings | None = None  # the settings of dynamic evaluation, if it was used
    cache: CacheSettings | None = None  # those of the cache
    tuned: Tuning | None = None  # the search that found the settings


def evaluate_run(
    run: AnyPath,
    split: str = "test",
    *,
    method: Literal["plain", "dynamic", "cache"] = "plain",
    batch_size: int = 1,
    tune: bool = False,
    tune_tokens: int | None = None,
    log_probs: AnyPath | None = None,
    data_dir: AnyPath | None = None,
    device: str | torch.device = "auto",
    on_stage: OnStage = no_stages,
    on_point: OnPoint | None = None,
    **settings: float,
) -> RunEvaluation:
    """Compute the exact perplexity of a run's best weights: every token except the first is predicted once.

    The method "dynamic" lets a copy of the model learn while it reads, and "cache" mixes in recent words. `settings`
    replace those published for the corpus: `lr`, `lamb`, `epsilon` and `segment`, or `window`, `theta` and `lamb`.
    `tune` first searches for better ones on the first `tune_tokens` of validation: by default on all of it, or on
    `CPU_TUNE_TOKENS` for dynamic evaluation on a CPU. `tune_tokens` turns `tune` on. A plain evaluation is faster with
    the text in `batch_size` columns. `log_probs` is a .npy file to write, for the log-probability of every predicted
    token.
    """
    device = find_device(device)
    tune = tune or tune_tokens is not None
    _check_arguments(method, batch_size, tune, tune_tokens, settings)
    output = None if log_probs is None else output_file(Path(log_probs))
    model = load(run, device).model
    corpus = run_corpus(Path(run), data_dir)
    ids = corpus.ids(split)
    stage = f"evaluating {split}"
    used: Settings | None = None
    tuning: Tuning | None = None
    if method == "plain":
        result = evaluate(model, ids, batch_size, on_progress=partial(on_stage, stage))
    else:
        given: dict[str, Any] = dict(settings)
        used = replace(PUBLISHED[method](corpus.name), **given)
        adaptive = AdaptiveEvaluation(model, corpus, used, on_stage)
        if tune:
            if tune_tokens is None and method == "dynamic" and device.type == "cpu":
                tune_tokens = CPU_TUNE_TOKENS
            tuning = adaptive.tune(tune_tokens, on_point)
            used = tuning.best
        result = adaptive.evaluate(split, used, stage)
    if output is not None:
        write_log_probs(output, result)
    return RunEvaluation(
        run=os.fspath(run),
        split=split,
        batch_size=batch_size,
        tokens=result.tokens,
        nll=result.nll,
        perplexity=result.perplexity,
        bits_per_character=bits_per_character(result.perplexity) if corpus.level == "char" else None,
        bits_per_byte=corpus.bits_per_byte(split, result.nll),
        dynamic=used if isinstance(used, DynamicSettings) else None,
        cache=used if isinstance(used, CacheSettings) else None,
        tuned=tuning,
    )


def _check_arguments(
    method: str, batch_size: int, tune: bool, tune_tokens: int | None, settings: Mapping[str, float]
) -> None:
    """Raise a UserError for an argument that the method does not use, or cannot use."""
    if method not in SETTINGS:
        raise UserError(f'there is no evaluation method "{method}": choose plain, dynamic or cache.')
    unused = [key.replace("lamb", "lambda") for key in settings if key not in SETTINGS[method]]
    if tune and method == "plain":
        unused.append("tune")
    if batch_size > 1 and method != "plain":
        unused.append("batch-size")
    if unused:
        raise UserError(f"{unused[0]} has no effect on a {method} evaluation: leave it out.")
    if method == "cache" and settings.get("lamb", 0) >= 1:
        raise UserError("the lambda of a cache must be below 1.")
    for key, value in {"batch_size": batch_size, "tune_tokens": tune_tokens, **settings}.items():
        if value is None:
            continue
        if key in COUNTS and not (isinstance(value, Integral) and value > 0):
            raise UserError(f"{key} must be a whole number and at least 1, got {value}.")
        if key in MAY_BE_ZERO and not 0 <= value < math.inf:
            raise UserError(f"{key} must be finite and not negative, got {value}.")
        if key not in MAY_BE_ZERO and not 0 < value < math.inf:
            raise UserError(f"{key} must be finite and positive, got {value}.")


def write_log_probs(path: Path, result: Evaluation) -> None:
    """Write the log-probability of every predicted token as float16, which changes the perplexity by about 1e-5 of it.

    Log-probabilities of several models on the same tokens can be mixed (benchmarks/mix_log_probs.py), and they say
    nothing about the text itself.
    """
    values = (-result.losses).to(torch.float16).cpu().numpy()
    buffer = io.BytesIO()
    np.save(buffer, values)
    write_bytes(path, buffer.getvalue())

"""Train by a recipe, from its name to the evaluated run: `highrank.train`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from highrank.data.corpus import Corpus
from highrank.data.dialog import DialogCorpus
from highrank.data.folders import own_folder
from highrank.data.tokenizer import FILE_NAME as TOKENIZER
from highrank.device import find_device
from highrank.errors import UserError
from highrank.files import AnyPath, optional_path, output_folder, unused_folder
from highrank.recipes import AnyRecipe, DialogRecipe, get_recipe
from highrank.recipes.settings import flat, format_setting, override
from highrank.runs.corpora import load_data, run_data, run_data_dir
from highrank.runs.folder import Run
from highrank.runs.record import RunRecord, summarize
from highrank.runs.training import train_run
from highrank.training.callbacks import Callbacks, TrainingSetup
from highrank.training.loop import Outcome
from highrank.training.ranks import connect_ranks, rank_device

ROOT = Path("runs")  # of runs without a folder of their own


@dataclass(frozen=True)
class TrainedRun:
    """A run that has ended or paused. Functions that take the path of a run also take this."""

    folder: Path
    outcome: Outcome
    valid_ppl: float | None  # of the best weights; None before the end of the first epoch
    test_ppl: float | None
    summary: RunRecord | None = field(repr=False)

    def __fspath__(self) -> str:
        return str(self.folder)


def train_recipe(
    recipe: str | AnyRecipe,
    corpus: AnyPath | None = None,
    *,
    settings: Mapping[str, Any] | Sequence[str] | None = None,
    out: AnyPath | None = None,
    data_dir: AnyPath | None = None,
    device: str | torch.device = "auto",
    max_epochs: int | None = None,
    time_budget: float | None = None,
    checkpoint_every: float = 120.0,
    graphs: bool = True,
    resume: bool = False,
    init_from: AnyPath | None = None,
    finetune: bool = False,
    callbacks: Callbacks | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainedRun:
    """Train a model by a recipe, save it as a run, and evaluate its best weights.

    `corpus` is the name or the folder of a corpus; by default, it is the recipe's own. `settings` change values of the
    recipe, such as {"train.lr": 15} or ["train.lr=15"]. `out` is the run folder; by default, it is runs/RECIPE,
    numbered if it exists. Training pauses after `max_epochs` epochs, counted over the whole run, after `time_budget`
    seconds, or when `should_stop` returns True; in that case nothing is evaluated. `resume` continues a run, the latest
    one of the recipe if there is no `out`. `callbacks` follow the progress, and `runs.training.train_run` explains the
    rest. Of several processes that torchrun started, the first one evaluates.
    """
    given = settings or {}
    texts = [f"{key}={format_setting(value)}" for key, value in given.items()] if isinstance(given, Mapping) else given
    if corpus is not None:
        texts = [f"data.corpus={corpus}", *texts]
    folder = optional_path(out)
    data_folder = optional_path(data_dir)
    callbacks = callbacks or Callbacks()
    device = rank_device(find_device(device))
    with connect_ranks(device) as ranks:
        chosen = get_recipe(recipe) if isinstance(recipe, str) else recipe
        if finetune and not resume:
            raise UserError("finetuning continues an existing run: add --resume (resume=True).")
        if init_from and resume:
            raise UserError("the weights of another run start a new run: leave out --resume (resume=True).")
        run = ranks.broadcast(_default_run(chosen.name, resume) if folder is None else Run(folder))
        if resume:
            _check_same_recipe(run, chosen.name, texts, data_folder)
            chosen = run.recipe()
            data = run_data(run.folder, data_folder)
        else:
            chosen = override(chosen, list(texts))
            if ranks.first:
                _check_new(run)
            ranks.wait()  # otherwise the other ranks would restore the checkpoint of a run that is already there
            data = load_data(chosen, data_folder)
            chosen = _resolve_data(chosen, data)
        callbacks.training_started(TrainingSetup(chosen, data, run.folder, device, ranks))
        try:
            outcome = train_run(
                chosen, data, run, device, resume=resume, init_from=optional_path(init_from), finetune=finetune,
                data_dir=data_folder, graphs=graphs, callbacks=callbacks, ranks=ranks, max_epochs=max_epochs,
                time_budget=time_budget, checkpoint_every=checkpoint_every, should_stop=should_stop,
            )  # fmt: skip
        finally:
            callbacks.training_ended()
    if outcome == "interrupted" or run.model_file is None or not ranks.first:
        return TrainedRun(run.folder, outcome, None, None, None)
    callbacks.message("evaluating the best weights on valid and test ...")
    summary = summarize(run, data, device, outcome)
    return TrainedRun(run.folder, outcome, summary.valid_ppl, summary.test_ppl, summary)


def _resolve_data(recipe: AnyRecipe, data: Corpus | DialogCorpus) -> AnyRecipe:
    """Return the recipe with the path of a user's own corpus, for commands in any folder, and the level of its text."""
    settings = [f"data.corpus={data.name}"]
    if isinstance(data, Corpus):  # a folder with a tokenizer has a level of its own
        settings.append(f"data.level={data.level}")
    return override(recipe, settings)


def _check_new(run: Run) -> None:
    """Raise a UserError if the folder of a new run cannot be made, or holds a run already."""
    if run.exists():
        raise UserError(
            f"{run.folder} already holds a run: continue it with --resume (resume=True), or choose another folder."
        )
    output_folder(run.folder)


def _default_run(recipe: str, resume: bool) -> Run:
    """Return the most recent run of a recipe in runs/, to resume it, or else the next free folder there."""
    if not resume:
        return Run(unused_folder(ROOT / recipe))
    name = re.compile(rf"{re.escape(recipe)}(-\d+)?")  # ptb-mos and ptb-mos-2, but not ptb-mos-hparams
    folders = [path for path in ROOT.glob(f"{recipe}*") if name.fullmatch(path.name)]
    if not folders:
        raise UserError(f"{ROOT} has no run of {recipe} to resume: name its folder.")
    return max(map(Run, folders), key=_last_trained)


def _last_trained(run: Run) -> float:
    """Return when a run was last saved. The folder itself also changes with `highrank record`."""
    file = run.folder / "checkpoint.json"
    return (file if file.exists() else run.folder).stat().st_mtime


def _check_same_recipe(run: Run, name: str, settings: Sequence[str], data_dir: Path | None) -> None:
    """Raise a UserError if the recipe or one of `settings` differs from what the run started with, and name it.

    Settings that are not given again stay as they were.
    """
    stored = run.recipe()
    if name != stored.name:
        raise UserError(f"{run.folder} is a run of {stored.name}, not of {name}: name {stored.name} to resume it.")
    old = flat(stored.resolved())
    new = flat(override(stored, list(settings)).resolved())
    if new["data.corpus"] != old["data.corpus"]:
        suffix = ".jsonl" if isinstance(stored, DialogRecipe) else ".txt"
        if own := own_folder(new["data.corpus"], run_data_dir(run, data_dir), suffix):
            new["data.corpus"] = str(own)
    if new["train.precision"] == "auto":
        new["train.precision"] = old["train.precision"]  # chosen when the run started
    if new.get("data.level") == "word" and (run.folder / TOKENIZER).exists():
        new["data.level"] = old["data.level"]  # that of the tokenizer
    changes = [
        f"{key} = {format_setting(value)}, not {format_setting(new[key])}"
        for key, value in old.items()
        if new[key] != value
    ]
    if changes:
        raise UserError(
            f"{run.folder} was started with {'; '.join(changes)}: resume it without changes, name another "
            "run, or start a new one."
        )

"""Train a run: create or resume its folder, run the training loop, and save checkpoints and metrics."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import torch

from highrank.data.corpus import Corpus
from highrank.data.dialog import DialogCorpus
from highrank.errors import UserError
from highrank.files import remove_temporary_files
from highrank.memory import require_bytes
from highrank.models import build_model
from highrank.models.seq2seq import build_seq2seq
from highrank.recipes import AnyRecipe, DialogRecipe, override
from highrank.runs import checkpoint as checkpoints
from highrank.runs.checkpoint import Piece
from highrank.runs.folder import Run
from highrank.runs.metrics import MetricsWriter
from highrank.runs.provenance import provenance
from highrank.runs.warm_start import warm_start
from highrank.training.callbacks import CallbackList, Callbacks
from highrank.training.checkpoint import Checkpoint, restore_checkpoint, take_checkpoint
from highrank.training.loop import Limits, Loop, Outcome
from highrank.training.precision import Precision
from highrank.training.ranks import ALONE, RankLostError, Ranks
from highrank.training.stages import DivergedError, Training


def train_run(
    recipe: AnyRecipe,
    corpus: Corpus | DialogCorpus,
    run: Run,
    device: torch.device,
    *,
    resume: bool = False,
    init_from: Path | None = None,
    finetune: bool = False,
    data_dir: Path | None = None,
    graphs: bool = True,
    callbacks: Callbacks | None = None,
    ranks: Ranks = ALONE,
    **limits: Unpack[Limits],
) -> Outcome:
    """Train until the recipe ends the run or training pauses. Either way, save a checkpoint to resume from.

    `init_from` is a run whose best weights a new run starts with. `finetune` first ends the current stage and starts
    the next finetuning stage. `Loop` explains the limits. Of several `ranks`, which share the run folder, the first one
    writes.
    """
    if resume:
        run.require_run()
        if not run.has_checkpoint() and (source := run.info().init_from):
            init_from = Path(source)  # the run stopped before it had saved these weights
    else:
        # Store the precision chosen for this device, so that a resumed run keeps it.
        recipe = override(recipe, [f"train.precision={Precision.name_of(recipe.train.precision, device)}"])
    _require_memory(recipe, corpus.vocab_size, device)
    training = Training(recipe, corpus, device, graphs=graphs, ranks=ranks)
    callbacks = callbacks or Callbacks()
    if init_from is not None:
        known = warm_start(training, corpus.words, init_from)
        callbacks.message(f"starting with the weights of {init_from}, which knows {known:,} of the words")
    if ranks.first and not resume:
        run.create(recipe, corpus, device, data_dir, init_from)
    with contextlib.ExitStack() as stack:
        if ranks.first:
            stack.enter_context(run.locked())
            remove_temporary_files(run.folder)
        earlier, metrics_bytes = _restore(training, run)
        state = training.state
        piece = Piece(
            epoch=state.epoch, seconds=state.seconds, time_budget=limits.get("time_budget"), outcome=None,
            processes=ranks.size, **provenance(device),
        )  # fmt: skip
        save: Callable[..., None] = _save_nothing
        if ranks.first:
            metrics = stack.enter_context(contextlib.closing(MetricsWriter(run.folder, metrics_bytes, state.step)))
            callbacks = CallbackList([metrics, callbacks])
            save = _Saver(run, earlier, piece, state.step, metrics).save
        loop = Loop(training, save=save, callbacks=callbacks, **limits)
        try:
            if not run.has_checkpoint():
                save(take_checkpoint(training))
            if finetune:
                loop.start_finetuning()
            outcome = loop.run()
            save(take_checkpoint(training), outcome)
            ranks.wait()  # for the first rank to save: when one process ends, torchrun may stop the others
            return outcome
        except (DivergedError, RankLostError) as error:
            raise UserError(f"{error} The last checkpoint is in {run.folder}.") from None


def count_parameters(recipe: AnyRecipe, vocab_size: int) -> int:
    """Return the size of a recipe's model without allocating it."""
    with torch.device("meta"):
        if isinstance(recipe, DialogRecipe):
            return build_seq2seq(recipe.model, vocab_size).n_parameters()
        return build_model(recipe.model, vocab_size).n_parameters()


def weight_copies(recipe: AnyRecipe) -> int:
    """Return how often training holds the weights: themselves, gradient, best, checkpoint, averages and moments."""
    averages = {"none": 0, "nt-asgd": 1, "two-tailed": 2}[recipe.train.averaging]
    return 4 + averages + (2 if recipe.train.optimizer == "adam" else 0)


def _require_memory(recipe: AnyRecipe, vocab_size: int, device: torch.device) -> None:
    """Raise a UserError if the model is too large to be trained on this device."""
    require_bytes(
        4 * weight_copies(recipe) * count_parameters(recipe, vocab_size),
        device,
        f"training {recipe.name} with a vocabulary of {vocab_size:,} words",
        "make the corpus with a smaller vocabulary (--max-vocab of 'highrank data make' or 'prepare'), or choose a "
        "smaller model",
    )


def _save_nothing(*_: object) -> None:
    """Do nothing: only the first rank saves."""


@dataclass
class _Saver:
    """Writes checkpoints, each with the pieces of the run and the length of metrics.jsonl at that moment."""

    run: Run
    earlier: list[Piece]
    piece: Piece  # the one that trains now
    first_step: int  # updates before this piece
    metrics: MetricsWriter

    def save(self, checkpoint: Checkpoint, outcome: Outcome | None = None) -> None:
        pieces = self.earlier
        if checkpoint.state.step > self.first_step:  # a piece without updates is not recorded
            pieces = [*pieces, replace(self.piece, outcome=outcome)]
        checkpoints.save(self.run.folder, checkpoint, pieces, self.metrics.size())


def _restore(training: Training, run: Run) -> tuple[list[Piece], int]:
    """Restore the last checkpoint of a run, and return its pieces and the length of its metrics.jsonl.

    A run without a checkpoint is new, or was killed before its first one.
    """
    if not run.has_checkpoint():
        if any(run.folder.glob("model-*.safetensors")):
            raise UserError(f"{run.folder} has lost its checkpoint.json: restore it from a backup, or start a new run.")
        return [], 0
    file = checkpoints.read(run.folder)
    checkpoint = checkpoints.load(run.folder)
    try:
        restore_checkpoint(training, checkpoint)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"the checkpoint in {run.folder} is damaged ({error}): restore it from a backup, or start a new run."
        ) from None
    return file.pieces, file.metrics_bytes

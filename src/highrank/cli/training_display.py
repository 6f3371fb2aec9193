"""The terminal during `highrank train`: what is trained, its progress, and the signals that stop it."""

import contextlib
import sys
from pathlib import Path

from highrank.cli.console import note, out, say
from highrank.cli.data_make import note_unseen
from highrank.cli.signals import stop_on_signal
from highrank.cli.training_progress import show_training
from highrank.data.corpus import Corpus
from highrank.runs.training import count_parameters
from highrank.training.callbacks import CallbackList, TrainingSetup

LARGE_VOCABULARY = 50_000  # on a CPU, where the time of an update grows with it


class TrainingDisplay(CallbackList):
    """Announces a training, shows its progress, and collects the signals that ask it to stop."""

    setup: TrainingSetup  # once training has started

    def __init__(self, max_epochs: int | None, time_budget: float | None, *, is_new_default: bool) -> None:
        """With `is_new_default`, a new run is trained in the default folder, numbered if that one exists."""
        super().__init__([])
        self._max_epochs = max_epochs
        self._time_budget = time_budget
        self._is_new_default = is_new_default
        self._signals: list[int] = []
        self._contexts = contextlib.ExitStack()  # open while the model trains

    def training_started(self, setup: TrainingSetup) -> None:
        self.setup = setup
        out.quiet = not setup.ranks.first
        if setup.ranks.first:
            self._announce(setup)
        on_cpu = setup.device.type == "cpu"
        progress = show_training(out, self._max_epochs, self._time_budget, setup.corpus.level, on_cpu)
        self._signals = self._contexts.enter_context(stop_on_signal())
        self.callbacks = [self._contexts.enter_context(progress)]

    def training_ended(self) -> None:
        self._contexts.__exit__(*sys.exc_info())  # with the error that ended training, if there was one

    def should_stop(self) -> bool:
        """Return whether a signal has asked training to stop."""
        return bool(self._signals)

    def _announce(self, setup: TrainingSetup) -> None:
        """Print corpus, tokens, vocabulary, parameters and device; note what may go wrong."""
        recipe = setup.recipe
        corpus = setup.corpus
        size = f"{len(corpus.splits['train']):,} training tokens" if isinstance(corpus, Corpus) else corpus.extent
        processes = f"{setup.ranks.size} processes, " if setup.ranks.size > 1 else ""
        say(
            f"{recipe.name} on {Path(corpus.name).name}: {size}, vocabulary {corpus.vocab_size:,}, "
            f"{count_parameters(recipe, corpus.vocab_size):,} parameters, {processes}{setup.device}, in {setup.folder}"
        )
        if isinstance(corpus, Corpus):
            note_unseen(corpus)
        if setup.device.type == "cpu" and corpus.vocab_size > LARGE_VOCABULARY:
            note(
                f"A vocabulary of {corpus.vocab_size:,} is very slow on a CPU: use a GPU, or limit it with "
                "--max-vocab of 'highrank data make' or 'prepare'."
            )
        default = setup.folder.with_name(recipe.name)
        if self._is_new_default and setup.folder != default:
            note(f"{default} exists, so this is a new run; --resume would continue one.")

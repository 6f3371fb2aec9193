"""Helpers that several test files share: toy corpora and recipes, and commands run as a user runs them."""

import contextlib
import dataclasses
import io
import json
import subprocess
import sys
import unittest.mock
from pathlib import Path

import torch

from highrank.__main__ import main
from highrank.recipes import DataSpec, DialogRecipe, ModelSpec, Recipe, TrainSpec
from highrank.recipes.dialog import DecodingSpec, DialogDataSpec, Seq2SeqSpec
from highrank.recipes.recipe import ScheduleSpec
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from highrank.training.checkpoint import Checkpoint
from highrank.training.state import TrainingState

CPU = torch.device("cpu")
PROCESS_TIMEOUT = 400  # seconds; generous, so that only a process that hangs reaches it on a busy machine
WORDS = ["the", "a", "cat", "dog", "bird", "sees", "hears", "likes", "small", "big", "old", "red", "runs", "eats"]

# --- a toy corpus and recipes that train on it in a second ---------------------------------------------------------

TOY = Recipe(
    name="toy",
    about="",
    data=DataSpec("toy"),
    model=ModelSpec("mos", embed_dim=6, hidden_sizes=(10, 8), n_components=3, dropout_input=0.2, weight_drop=0.3),
    train=TrainSpec(lr=5.0, batch_size=4, seed=7, bptt=10, max_over_bptt=5, max_epochs=4, finetunes=0),
)


def changed(recipe=TOY, model=None, **train_changes):
    """Return `recipe` with some values of its `train` (and `model`) replaced."""
    recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, **train_changes))
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, **(model or {})))


LEARNER = changed(model={"embed_dim": 16, "hidden_sizes": (32,)}, lr=8.0, alpha=0.0, beta=0.0, max_epochs=10)


def write_toy_corpus(folder: Path, lines: int = 120) -> Path:
    """Write a small, deterministic corpus in which most words follow from the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    for s, (split, count) in enumerate({"train": lines, "valid": lines // 4, "test": lines // 4}.items()):
        text = ""
        for i in range(count):
            word, words = (i * i + s) % len(WORDS), []
            for j in range(4 + (i * 7 + s) % 6):
                words.append(WORDS[word])
                word = (5 * word + 3 + (i + j) % 5 // 4) % len(WORDS)
            text += " ".join(words) + "\n"
        (folder / f"{split}.txt").write_text(text)
    return folder


TOY_DIALOG = DialogRecipe(
    name="toy-dialog",
    about="",
    data=DialogDataSpec("dialogs", context_size=3),
    model=Seq2SeqSpec(
        "mos", embed_dim=6, encoder_size=5, decoder_size=8, attention_size=7, n_components=3, dropout_input=0.2
    ),
    train=ScheduleSpec(lr=0.01, batch_size=4, seed=7, optimizer="adam", clip=5.0, nonmono=1, max_epochs=4, finetunes=0),
    decoding=DecodingSpec(beam_size=4, n_best=3, max_length=6),
)


def write_toy_dialogs(folder: Path) -> Path:
    """Write a small folder of dialogs in which every utterance repeats the one before, and adds or drops words."""
    folder.mkdir(parents=True, exist_ok=True)
    for s, (split, count) in enumerate({"train": 10, "valid": 3, "test": 3}.items()):
        lines = []
        for i in range(count):
            lengths = [1 + (i + s + 3 * u) % 9 for u in range(8)]
            texts = [" ".join(WORDS[(i + j) % len(WORDS)] for j in range(length)) for length in lengths]
            lines.append(json.dumps({"utts": [["AB"[u % 2], text] for u, text in enumerate(texts)]}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def save_weights(run, weights):
    """Save a checkpoint of `run` whose best weights are `weights`, as if it had been trained for an epoch."""
    state = TrainingState(epoch=1, step=1, best_epoch=1, best_valid=1.0)
    rng = torch.get_rng_state()
    tensors = {f"weights/{name}": tensor for name, tensor in weights.items()} | {"rng/torch": rng}
    checkpoints.save(run.folder, Checkpoint(state, tensors, weights), [], 0)


# --- looking into a run ---------------------------------------------------------------------------------------------


def epochs(run):
    """Return the epoch lines of a run's metrics."""
    lines = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "epoch"]


def losses(training, n):
    """Make the next n updates and return the loss of each."""
    result = []
    for _, minibatch in zip(range(n), training.minibatches(), strict=False):
        training.update(minibatch)
        result.append(training.read_totals())
    return result


def weights(run):
    """Return the current weights, all averages and Adam's moments of a run's last checkpoint."""
    tensors = checkpoints.load(run.folder).tensors
    return {name: tensor for name, tensor in tensors.items() if name != "hidden" and not name.startswith("rng/")}


def assert_same_run(a: Run, b: Run):
    """Check that two runs are bit-equal: weights, averages, best model and curve."""
    for (key, x), (other, y) in zip(weights(a).items(), weights(b).items(), strict=True):
        assert key == other
        assert torch.equal(x, y), key
    timeless = [{k: v for k, v in e.items() if k not in ("seconds", "tokens_per_second")} for e in epochs(a)]
    assert timeless == [{k: v for k, v in e.items() if k not in ("seconds", "tokens_per_second")} for e in epochs(b)]
    assert a.model_file.read_bytes() == b.model_file.read_bytes()


# --- commands -------------------------------------------------------------------------------------------------------

SMALL = (
    "model.embed_dim=6 model.hidden_sizes=10,8 model.n_components=3 train.batch_size=4 train.bptt=10 "
    "train.max_over_bptt=5 train.lr=5 train.max_epochs=3 train.finetunes=0"
)


SMALL_DIALOG = (
    "data.corpus=dialogs model.embed_dim=6 model.encoder_size=5 model.decoder_size=8 model.attention_size=7 "
    "train.batch_size=4 train.eval_batch_size=4 train.max_epochs=2 decoding.max_length=6"
)


def dialog_settings(extra: str = "") -> list[str]:
    """Return the --set options that make a dialog recipe small enough for a test."""
    return [part for setting in f"{SMALL_DIALOG} {extra}".split() for part in ("--set", setting)]


def settings(extra: str = "") -> list[str]:
    """Return the --set options that make a paper recipe small enough for a test."""
    return [part for setting in f"{SMALL} {extra}".split() for part in ("--set", setting)]


def highrank(*arguments, cwd, check=0):
    """Run a command in this process (a new one costs seconds of imports) and return its exit code and output."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        unittest.mock.patch.object(sys, "argv", ["highrank", *map(str, arguments)]),
    ):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
    assert code == check, stdout.getvalue() + stderr.getvalue()
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


def as_process(*arguments, cwd, check=0, **options):
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "highrank", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=PROCESS_TIMEOUT, check=False, **options
    )
    assert done.returncode == check, done.stdout + done.stderr
    return done


def fails(*arguments, cwd, run=highrank, **options) -> str:
    """Run a command that must exit with code 2 and one sentence, and return that sentence."""
    done = run(*arguments, cwd=cwd, check=2, **options)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("highrank: ")
    return lines[0]

"""`highrank quickstart`: the paper's argument on data that needs no download, in a few minutes on a CPU.

Part 1 fits each head to a finite language whose log-probability matrix A has full rank. Every context has a free
vector, so only the head limits a model. No softmax (section 2.1) and no MoC (section 2.5) with D < rank(A) - 1 can fit
such a language; a softmax with D >= rank(A) can, and is the control. `highrank theory` goes further.

Part 2 trains three small AWD-LSTMs on Python's own reference text, one per head, with equal parameter budgets.
"""

import math
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from highrank.cli.console import out, print_table, print_written, progress, say

if TYPE_CHECKING:
    from highrank.analysis.finite_language.models import Fit
    from highrank.data.corpus import Corpus
    from highrank.data.synthetic import FiniteLanguage

CONTEXTS, WORDS, SCALE = 256, 64, 1.5  # of the finite language; SCALE is the standard deviation of its logits
EMBED_DIM, N_COMPONENTS, IN_FEATURES = 8, 8, 32  # of the heads; IN_FEATURES is the size of a mixture's g
STEPS = 900
EPOCHS = 6
RECIPE_NAMES = ("pydoc-softmax", "pydoc-moc", "pydoc-mos")


@dataclass(frozen=True)
class TrainedModel:
    """A model of part 2, as report.json stores it."""

    name: str
    folder: str
    parameters: int
    embed_dim: int
    valid_ppl: float
    test_ppl: float
    rank: int
    rank_bound: int | None  # None: no bound below the size of the matrix
    matrix: tuple[int, int]  # rows and columns of the log-probability matrix
    curve: list[tuple[int, float]]  # epoch, validation perplexity
    singular_values: list[float]
    seconds: float


def quickstart(
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Output folder. Default: quickstart, numbered if taken."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Seed of all random numbers.")] = 1,
) -> None:
    """See the bottleneck broken, on a finite language and on a real text. Needs no download and minutes on a CPU."""
    import torch

    from highrank.data.corpus import load_corpus
    from highrank.data.synthetic import gaussian_language
    from highrank.files import new_folder, output_folder, unused_folder, write_json
    from highrank.plotting import save_figure
    from highrank.report.figures.quickstart import quickstart_figure
    from highrank.runs.provenance import provenance

    started = time.perf_counter()
    folder = output_folder(output or unused_folder(Path("quickstart")))
    for name in RECIPE_NAMES:
        new_folder(folder / "runs" / name)

    say("1. A finite language of full rank", style="bold")
    _say_wrapped(
        f"{CONTEXTS} contexts and {WORDS} words with random log-probabilities: the matrix A = log P* has rank {WORDS}. "
        "A softmax over D-dimensional embeddings reaches rank D + 2 at most. Fitting each head to P*:"
    )
    language = gaussian_language(CONTEXTS, WORDS, SCALE, torch.Generator().manual_seed(seed))
    fits = _fit_heads(language, seed)
    _show_fits(fits, language.entropy)

    say("2. A real text: Python's reference documentation", style="bold")
    corpus = load_corpus("pydoc")
    tokens = {split: len(ids) for split, ids in corpus.splits.items()}
    _say_wrapped(
        f"{tokens['train']:,} training tokens, {corpus.vocab_size:,} words. Three small AWD-LSTMs with equal parameter "
        f"budgets, {EPOCHS} epochs each:"
    )
    models = [_train(name, corpus, folder / "runs" / name, seed) for name in RECIPE_NAMES]
    _show_models(models)

    seconds = time.perf_counter() - started
    report = {
        "seed": seed,
        "seconds": seconds,
        "provenance": provenance(torch.device("cpu")),
        "contexts": CONTEXTS,
        "words": WORDS,
        "entropy": language.entropy,
        "fits": [asdict(fit) for fit in fits],
        "corpus_fingerprint": corpus.fingerprint,
        "vocabulary": corpus.vocab_size,
        "tokens": tokens,
        "models": [asdict(model) for model in models],
    }
    write_json(folder / "report.json", report)
    truth = torch.linalg.svdvals(language.log_p).tolist()
    save_figure(quickstart_figure(fits, truth, models), [folder / "figure.png"])
    say(f"Finished in {seconds:.0f} s.")
    print_written(
        (folder / "figure.png", "training curves and singular values"),
        (folder / "report.json", "every number above"),
        (folder / "runs", "the trained models"),
    )
    mos = models[-1].folder
    say(
        "\nNext steps:\n"
        f"  highrank generate {mos} --prompt 'the statement'\n"
        f"  highrank train pydoc-mos --out {mos} --resume --max-epochs 12   (continue training)\n"
        f"  highrank compare {mos} {models[0].folder} --out comparison   (where one predicts better)\n"
        "  highrank theory      (the paper's theory, checked on a finite language)\n"
        "  highrank recipes     (the paper's models, side by side)\n"
        "  highrank data list   (where their corpora come from)"
    )


def _say_wrapped(text: str) -> None:
    """Print an indented paragraph that fits the screen, and an empty line."""
    out.print(Padding(Text(text), (0, 0, 1, 3)))


def _fit_heads(language: "FiniteLanguage", seed: int) -> "list[Fit]":
    """Fit each head, and a softmax with D = M as the control, to the language."""
    import torch

    from highrank.analysis.finite_language.models import fit_head
    from highrank.heads import MoCHead, MoSHead, SoftmaxHead

    torch.manual_seed(seed)
    heads = {
        f"Softmax, D={EMBED_DIM}": SoftmaxHead(EMBED_DIM, WORDS),
        f"MoC-{N_COMPONENTS}, D={EMBED_DIM}": MoCHead(IN_FEATURES, EMBED_DIM, WORDS, N_COMPONENTS),
        f"MoS-{N_COMPONENTS}, D={EMBED_DIM}": MoSHead(IN_FEATURES, EMBED_DIM, WORDS, N_COMPONENTS),
        f"Softmax, D={WORDS} (control)": SoftmaxHead(WORDS, WORDS),
    }
    with progress() as on_stage:
        return [
            fit_head(name, head, language, steps=STEPS, on_progress=partial(on_stage, f"fitting {name}"))
            for name, head in heads.items()
        ]


def _show_fits(fits: "list[Fit]", entropy: float) -> None:
    table = Table("head", "parameters", "KL to P*", "perplexity / floor", "rank of log P", "bound")
    for fit in fits:
        bound = f"D + 2 = {fit.rank_bound}" if fit.rank_bound else f"none below {WORDS}"
        ratio = f"{math.exp(fit.kl):.4f}"
        table.add_row(fit.name, f"{fit.parameters:,}", f"{fit.kl:.4f}", ratio, str(fit.rank), bound)
    print_table(table)
    softmax, moc, mos, control = fits
    distance = "closer to" if mos.kl < min(softmax.kl, moc.kl) else "no closer to"
    verdict = "fits, as the theory predicts" if control.kl < 0.1 * softmax.kl else "does not fit within these steps"
    _say_wrapped(
        f"The floor, exp(entropy of P*), is a perplexity of {math.exp(entropy):.3f}. With D = {EMBED_DIM}, Softmax and "
        f"MoC end at rank {max(softmax.rank, moc.rank)}; MoS reaches rank {mos.rank} and comes {distance} P* than "
        "both. MoC has as many parameters as MoS, so their number is not the reason. "
        f"The control with D = {WORDS} {verdict}."
    )


def _train(name: str, corpus: "Corpus", folder: Path, seed: int) -> TrainedModel:
    """Train a recipe for a few epochs and measure the rank of the model's log-probabilities on valid and test."""
    import torch

    from highrank.analysis import analyze, carrying_state
    from highrank.cli.training_progress import show_training
    from highrank.recipes import RECIPES
    from highrank.runs.folder import Run, load
    from highrank.runs.record import summarize
    from highrank.runs.training import train

    say(f"   {name}", style="bold")
    recipe = RECIPES[name]
    recipe = replace(recipe, train=replace(recipe.train, seed=seed))
    run = Run(folder)
    device = torch.device("cpu")
    with show_training(out, EPOCHS, None) as callbacks:
        outcome = train(recipe, corpus, run, device, max_epochs=EPOCHS, callbacks=callbacks)
    summary = summarize(run, corpus, device, outcome)
    ids = torch.cat([corpus.splits["valid"], corpus.splits["test"]])
    result = analyze(carrying_state(load(folder).model.double()), ids, contexts=0, window=500)
    return TrainedModel(
        name=name,
        folder=str(folder),
        parameters=summary.parameters,
        embed_dim=recipe.model.embed_dim,
        valid_ppl=summary.valid_ppl,
        test_ppl=summary.test_ppl,
        rank=result.rank,
        rank_bound=None if recipe.model.head == "mos" else recipe.model.embed_dim + 2,
        matrix=(len(ids), corpus.vocab_size),
        curve=[(metrics.epoch, metrics.valid_ppl) for metrics in run.epochs()],
        singular_values=result.spectrum.values,
        seconds=summary.seconds,
    )


def _show_models(models: list[TrainedModel]) -> None:
    table = Table("recipe", "parameters", "D", "valid ppl", "test ppl", "rank of log P", "bound", "seconds")
    for model in models:
        sizes = [f"{model.parameters:,}", str(model.embed_dim)]
        perplexities = [f"{model.valid_ppl:.2f}", f"{model.test_ppl:.2f}"]
        bound = f"D + 2 = {model.rank_bound}" if model.rank_bound else f"{min(model.matrix):,}"
        table.add_row(model.name, *sizes, *perplexities, f"{model.rank:,}", bound, f"{model.seconds:.0f}")
    say("")
    print_table(table)
    softmax, moc, mos = models
    best = min(models, key=lambda model: model.test_ppl)
    _say_wrapped(
        f"Ranks: {softmax.rank} (Softmax) and {moc.rank} (MoC) with a bound of {softmax.rank_bound}; {mos.rank:,} "
        f"(MoS). {best.name} has the lowest test perplexity. One seed, {EPOCHS} epochs and a small corpus say little "
        "about perplexity: the paper's comparison needs its corpora and schedules."
    )

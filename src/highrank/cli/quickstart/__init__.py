"""`highrank quickstart`: the paper's argument on data that needs no download, in a few minutes on a CPU."""

import dataclasses
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from highrank.analysis.finite_language.laboratory import Fit
from highrank.analysis.rank import numerical_rank
from highrank.cli.quickstart import known, spoken
from highrank.cli.training_progress import watch
from highrank.data.corpus import Corpus, load_corpus
from highrank.files import output_folder, write_json
from highrank.folded import folded
from highrank.report.figures.quickstart import draw
from highrank.runs.provenance import provenance


def quickstart(folder: Path, seed: int, out: Console) -> dict[str, Any]:
    """Run both parts, print tables, write report.json, figure.png and the trained runs into `folder`."""
    began = time.perf_counter()
    output_folder(folder)
    spoken.check_folder(folder / "runs")
    for stale in ("report.json", "figure.png"):  # of an earlier quickstart whose runs are about to be replaced
        (folder / stale).unlink(missing_ok=True)
    out.print("[bold]1. A language we know[/]")
    out.print(
        f"   {known.N_CONTEXTS} contexts, {known.N_WORDS} words, every log-probability drawn at random: "
        f"the matrix A = log P* has full rank {known.N_WORDS}.\n"
        f"   A softmax of size D can only say matrices of rank D + 2 or less. Fitting each head to the truth:\n"
    )
    with Progress(console=out, transient=True) as bar:
        task = bar.add_task("fitting")
        language, fits = known.fit_known_language(
            seed, lambda name, step, steps: bar.update(task, description=name, completed=step, total=steps)
        )
    truth = torch.linalg.svdvals(language.log_p)
    out.print(folded(_known_table(fits)))
    floor = torch.tensor(language.entropy).exp().item()
    out.print(
        f"   The perplexity floor, exp(entropy of P*), is {floor:.3f}; the rank of A itself is "
        f"{numerical_rank(truth, *language.log_p.shape)}.\n   {_known_reading(fits)}\n"
    )

    corpus = load_corpus("pydoc")
    tokens = {split: len(ids) for split, ids in corpus.splits.items()}
    out.print("[bold]2. A language we speak[/]")
    out.print(
        f"   Python's own reference text: {tokens['train']:,} training tokens, {corpus.vocab_size:,} words. "
        f"Three small AWD-LSTMs,\n   equal parameter budgets, {spoken.EPOCHS} epochs each:\n"
    )
    trained = []
    for name in spoken.RECIPE_NAMES:
        out.print(f"   [bold]{name}[/]")
        with watch(out, spoken.EPOCHS, None) as listener:
            trained.append(spoken.train_spoken(corpus, folder / "runs", name, seed, listener))
    out.print()
    out.print(folded(_spoken_table(trained)))
    out.print(f"   {_spoken_reading(trained)}\n")

    report = _report(fits, language.entropy, trained, corpus, seed, time.perf_counter() - began)
    write_json(folder / "report.json", report)
    draw(folder / "figure.png", fits, truth.tolist(), trained)
    _farewell(out, folder, trained, report["seconds"])
    return report


def _known_table(fits: list[Fit]) -> Table:
    table = Table("head", "parameters", "KL to truth", "perplexity / floor", "rank of log P", "bound")
    for fit in fits:
        over = f"{torch.tensor(fit.kl).exp().item():.4f}"
        bound = f"D + 2 = {fit.rank_bound}" if fit.rank_bound else f"none below {known.N_WORDS}"
        table.add_row(fit.name, f"{fit.parameters:,}", f"{fit.kl:.4f}", over, str(fit.rank), bound)
    return table


def _known_reading(fits: list[Fit]) -> str:
    """What the numbers at hand say, whichever way they fell."""
    softmax, moc, mos, control = fits
    low = max(softmax.rank, moc.rank)
    better = "closer to" if mos.kl < min(softmax.kl, moc.kl) else "no closer to"
    verdict = "fits, as the theory predicts" if control.kl < 0.1 * softmax.kl else "does not fit well in these steps"
    return (
        f"At D = {softmax.embed_dim} the low-rank heads end at rank {low}; MoS reaches rank {mos.rank} "
        f"and comes {better} the truth than both.\n"
        f"   MoC has exactly as many parameters as MoS, so their number is not the reason. "
        f"The control with D = {control.embed_dim} {verdict}."
    )


def _spoken_table(trained: list[spoken.Trained]) -> Table:
    table = Table("recipe", "parameters", "D", "valid ppl", "test ppl", "rank of log P", "bound", "seconds")
    for run in trained:
        bound = f"D + 2 = {run.rank_bound}" if run.rank_bound else f"{min(run.matrix):,}"
        numbers = (f"{run.valid_ppl:.2f}", f"{run.test_ppl:.2f}", f"{run.rank:,}", bound, f"{run.seconds:.0f}")
        table.add_row(run.name, f"{run.parameters:,}", str(run.embed_dim), *numbers)
    return table


def _spoken_reading(trained: list[spoken.Trained]) -> str:
    best = min(trained, key=lambda run: run.test_ppl)
    softmax, moc, mos = trained
    return (
        f"Ranks: {softmax.rank} (Softmax) and {moc.rank} (MoC) against a bound of {softmax.rank_bound}; "
        f"{mos.rank:,} for MoS. {best.name} has the lowest test perplexity here.\n"
        f"   One seed, {spoken.EPOCHS} epochs and a small corpus: the perplexities are an anecdote. "
        "The paper's claim about them\n   needs its own corpora and schedules (see the recipes)."
    )


def _report(
    fits: list[Fit],
    entropy: float,
    trained: list[spoken.Trained],
    corpus: Corpus,
    seed: int,
    seconds: float,
) -> dict[str, Any]:
    return {
        "seed": seed,
        "seconds": seconds,
        "provenance": provenance(torch.device("cpu")),
        "known": {
            "contexts": known.N_CONTEXTS,
            "words": known.N_WORDS,
            "entropy": entropy,
            "fits": [dataclasses.asdict(fit) for fit in fits],
        },
        "spoken": {
            "corpus_fingerprint": corpus.fingerprint,
            "vocabulary": corpus.vocab_size,
            "tokens": {split: len(ids) for split, ids in corpus.splits.items()},
            "runs": [dataclasses.asdict(run) for run in trained],
        },
    }


def _farewell(out: Console, folder: Path, trained: list[spoken.Trained], seconds: float) -> None:
    last = trained[-1].folder
    highrank = "highrank" if shutil.which("highrank") else sys.argv[0]  # typed as it stands, it must work
    files = _written(
        (folder / "figure.png", "training curves and singular values"),
        (folder / "report.json", "every number above"),
        (folder / "runs", "the trained models"),
    )
    out.print(
        f"Done in {seconds:.0f} s. {files}\n\n"
        "What to try next:\n"
        f"  {highrank} generate {last} --prompt 'the statement'\n"
        f"  {highrank} train pydoc-mos --out {last} --resume --max-epochs 12   (go on training)\n"
        f"  {highrank} compare {last} {trained[0].folder} --out comparison   (where one predicts better)\n"
        f"  {highrank} theory      (the paper's theory put to the numbers)\n"
        f"  {highrank} recipes     (the paper's models, side by side)\n"
        f"  {highrank} data list   (where their corpora come from)",
        soft_wrap=True,
    )


def _written(*files: "Path | tuple[Path, str]") -> str:
    return "Written to:" + "".join(f"\n  {file if isinstance(file, Path) else file[0]}" for file in files)

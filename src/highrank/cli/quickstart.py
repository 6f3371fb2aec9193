"""`highrank quickstart`: the paper's argument in a minute on a CPU.

Fits each head to a finite language whose log-probability matrix A has full rank. Every context has a free vector, so
only the head limits a model. No softmax (section 2.1) and no MoC (section 2.5) with D < rank(A) - 1 can fit such a
language; a softmax with D >= rank(A) can, and is the control. `highrank theory` goes further.
"""

import math
import time
from dataclasses import asdict
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
    from highrank.data.synthetic import FiniteLanguage

CONTEXTS, WORDS, SCALE = 256, 64, 1.5  # of the finite language; SCALE is the standard deviation of its logits
EMBED_DIM, N_COMPONENTS, IN_FEATURES = 8, 8, 32  # of the heads; IN_FEATURES is the size of a mixture's g
STEPS = 900


def quickstart(
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Output folder. Default: quickstart, numbered if taken."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Seed of all random numbers.")] = 1,
) -> None:
    """See the bottleneck broken on a finite language. Needs no data, and less than a minute on a CPU."""
    import torch

    from highrank.data.synthetic import gaussian_language
    from highrank.files import new_folder, output_folder, unused_folder, write_json
    from highrank.plotting import save_figure
    from highrank.report.figures.quickstart import quickstart_figure
    from highrank.runs.provenance import provenance

    started = time.perf_counter()
    folder = output or unused_folder(Path("quickstart"))
    new_folder(folder)
    output_folder(folder)
    say("A finite language of full rank", style="bold")
    _say_wrapped(
        f"{CONTEXTS} contexts and {WORDS} words with random log-probabilities: the matrix A = log P* has rank {WORDS}. "
        "A softmax over D-dimensional embeddings reaches rank D + 2 at most. Fitting each head to P*:"
    )
    language = gaussian_language(CONTEXTS, WORDS, SCALE, torch.Generator().manual_seed(seed))
    fits = _fit_heads(language, seed)
    _show_fits(fits, language.entropy)

    seconds = time.perf_counter() - started
    report = {
        "seed": seed,
        "seconds": seconds,
        "provenance": provenance(torch.device("cpu")),
        "contexts": CONTEXTS,
        "words": WORDS,
        "entropy": language.entropy,
        "fits": [asdict(fit) for fit in fits],
    }
    write_json(folder / "report.json", report)
    truth = torch.linalg.svdvals(language.log_p).tolist()
    save_figure(quickstart_figure(fits, truth), [folder / "figure.png"])
    say(f"Finished in {seconds:.0f} s.")
    print_written(
        (folder / "figure.png", "the fits and their singular values"),
        (folder / "report.json", "every number above"),
    )
    say(
        "\nNext steps:\n"
        "  highrank train pydoc-mos --max-epochs 5   (a small model of Python's reference documentation)\n"
        "  highrank generate runs/pydoc-mos --prompt 'the statement'\n"
        "  highrank theory      (the paper's theory, checked on a finite language)\n"
        "  highrank recipes     (the paper's models, and others to train)\n"
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

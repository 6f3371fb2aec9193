"""`highrank compare`: two runs on the same text, step by step."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

import highrank
from highrank.cli.console import out, print_json, print_table, print_written, progress, say
from highrank.cli.options import AsJson, DataDir, Device
from highrank.device import find_device

if TYPE_CHECKING:
    from highrank.analysis.compare import ComparedStep, Comparison
    from highrank.analysis.prediction import Prediction

COLOURS = "dodger_blue1", "dark_orange"
CONTEXT_CHARACTERS = 100  # shown before the reference


def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder, as made by 'highrank train'.")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Another run, trained on the same corpus.")],
    split: Annotated[Literal["valid", "test", "train"], typer.Option(help="The text to read.")] = "test",
    n: Annotated[int, typer.Option("--n", min=1, help="Number of steps to show, in each direction.")] = 5,
    top: Annotated[int, typer.Option(min=1, help="Number of words to show per distribution.")] = 5,
    contains: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Only steps with this word (or consecutive words) in context or reference."),
    ] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Folder for the page (HTML), JSON and the figure."),
    ] = None,
    as_json: AsJson = False,
    numbers_only: Annotated[
        bool, typer.Option("--numbers-only", help="Print JSON that quotes no text of the corpus.")
    ] = False,
) -> None:
    """Show where one run predicts better than another, and what both predict there.

    Lists the steps with the widest margin in negative log-likelihood, in both directions, with the components of
    mixtures; then gains by how often the word occurs in training and by the previous word. The first comparison of a
    run reads the whole split and caches its losses, so the next ones are quick.
    """
    from highrank.files import output_folder
    from highrank.report.comparison import comparison_json, comparison_numbers, write_comparison
    from highrank.runs.provenance import provenance

    if output is not None:
        output_folder(output)
    torch_device = find_device(device)
    origin = {"runs": [str(run_a), str(run_b)], "provenance": provenance(torch_device)}
    with progress() as on_stage:
        comparison = highrank.compare(
            run_a, run_b, split=split, n=n, top=top, contains=contains, data_dir=data_dir, device=torch_device,
            on_stage=on_stage,
        )  # fmt: skip
    if numbers_only:
        print_json(comparison_numbers(comparison) | origin)
    elif as_json:
        print_json(comparison_json(comparison) | origin)
    else:
        _print_comparison(comparison)
    if output:
        print_written(*write_comparison(comparison, output, origin), as_json=as_json or numbers_only)


def _print_comparison(c: "Comparison") -> None:
    from highrank.report.comparison_text import component_notes, describe, notes, sections, summary

    for side in (c.a, c.b):
        say(f"{side.name} ({describe(side)}): {c.split} perplexity {side.perplexity:.2f}")
    say(summary(c))
    for line in (*notes(c), *component_notes(c)):
        say(line, style="dim")
    for heading, steps in sections(c):
        _print_steps(c, heading, [(f"{step.gain:+.2f}", step) for step in steps])
    if c.paper_cases is not None:
        cases = [(f"case {x.paper.number}\n{x.step.gain:+.2f}", x.step) for x in c.paper_cases if x.step]
        _print_steps(c, "The paper's six cases", cases)
        for case in c.paper_cases:
            if case.step is None:
                say(f'Case {case.paper.number} ("… {case.paper.key} {case.paper.reference}") is not in this text.')
    _print_groups(c)


def _print_groups(c: "Comparison") -> None:
    from highrank.report.comparison_text import format_gain, groupings, visible

    for grouping in groupings(c):
        if not grouping.groups:
            continue
        table = Table(title=grouping.title, title_justify="left", show_edge=False)
        for column in ("", "steps", c.a.name, c.b.name, "gain, nats per token"):
            table.add_column(column, justify="right" if column else "left")
        for g in grouping.groups:
            numbers = (f"{g.steps:,}", f"{g.nll_a:.3f}", f"{g.nll_b:.3f}", format_gain(g))
            significant = g.gain_se is not None and abs(g.gain) > 2 * g.gain_se
            table.add_row(visible(g.name), *numbers, style="" if significant else "dim")
        out.print()
        print_table(table)


def _print_steps(c: "Comparison", title: str, steps: "list[tuple[str, ComparedStep]]") -> None:
    from highrank.analysis.context import join_tokens
    from highrank.report.comparison_text import visible

    out.print()
    if not steps:
        say(f"{title}: nowhere.")
        return
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("gain", justify="right")
    table.add_column("context and reference", ratio=2)
    for side, colour in zip((c.a, c.b), COLOURS, strict=True):
        table.add_column(Text(side.name, style=colour), ratio=2)
    for label, step in steps:
        text = Text(_shorten(join_tokens(step.context, c.level), c.level))
        text.append(" " if c.level == "word" else "").append(visible(step.reference), style="bold reverse")
        table.add_row(label, text, _prediction(step.a, step.reference), _prediction(step.b, step.reference))
    print_table(table)


def _shorten(context: str, level: str) -> str:
    """Return the end of a long context; at word level it starts with a whole word."""
    if len(context) <= CONTEXT_CHARACTERS:
        return context
    end = context[-CONTEXT_CHARACTERS:]
    return "… " + end.partition(" ")[2] if level == "word" else "…" + end


def _prediction(prediction: "Prediction", reference: str) -> Text:
    """Return the most probable words, the reference's rank, and the two components with most weight or share."""
    from highrank.report.comparison_text import format_probability, shown_components, visible

    text = Text()
    for x in prediction.top:
        text.append(f"{visible(x.word)} {format_probability(x.p)}  ", style="bold" if x.word == reference else "")
    if prediction.rank > len(prediction.top):
        probability = format_probability(prediction.p_reference)
        text.append(f"({visible(reference)} {probability}, rank {prediction.rank:,})", style="bold")
    for component in shown_components(prediction)[0][:2]:
        share = "" if component.share is None else f", share {format_probability(component.share)}"
        words = " ".join(visible(x.word) for x in component.top)
        text.append(f"\n#{component.index} weight {format_probability(component.weight)}{share}: {words}", style="dim")
    return text

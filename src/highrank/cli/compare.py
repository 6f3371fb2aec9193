"""`highrank compare`: two runs on the same text, step by step."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from highrank.cli.console import out, print_json, print_written, progress, say
from highrank.cli.options import AsJson, DataDir, Device, find_device
from highrank.errors import UserError
from highrank.folded import folded

if TYPE_CHECKING:
    from highrank.analysis.compare import Comparison, Step
    from highrank.analysis.prediction import Prediction

COLOURS = "dodger_blue1", "dark_orange"
SHORT_CONTEXT = 100  # characters before the blank, in the terminal


def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder, as made by 'highrank train'.")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Another, trained on the same corpus.")],
    split: Annotated[str, typer.Option(help="valid or test (or train).")] = "test",
    n: Annotated[int, typer.Option("--n", min=1, help="How many steps to show, in each direction.")] = 20,
    top: Annotated[int, typer.Option(min=1, help="How many words to show of a distribution.")] = 5,
    contains: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS", help="Only steps with this word (or words in a row) in the context or as the word."
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Columns; 1 carries the state through the whole stream.")] = 1,
    data_dir: DataDir = None,
    device: Device = "auto",
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Folder for the page (HTML), Markdown, JSON and the figure."),
    ] = None,
    as_json: AsJson = False,
    numbers_only: Annotated[
        bool, typer.Option("--numbers-only", help="With --json: nothing that quotes the text, to share or to keep.")
    ] = False,
) -> None:
    """Where one run predicts better than another, and what both say there.

    Shows the steps where A beats B by the widest margin of negative log loss, and the reverse, with the components of
    mixtures; then the gain by how often the word was seen, and by the word before. The first comparison of a run reads
    the whole split; its losses are kept in the user's cache folder, so the next ones are quick.
    """
    from highrank.analysis.compare import compare_runs
    from highrank.files import output_folder
    from highrank.report.comparison import as_json as comparison_json
    from highrank.report.comparison import numbers_json, write
    from highrank.runs.provenance import provenance

    if numbers_only and not as_json:
        raise UserError("--numbers-only belongs to --json: add it.")
    if output is not None:
        output_folder(output)
    where = find_device(device)
    origin = {"runs": [str(run_a), str(run_b)], "provenance": provenance(where)}
    with progress() as on_stage:
        comparison = compare_runs(
            run_a, run_b, split=split, n=n, top=top, contains=contains, batch_size=batch_size, data_dir=data_dir,
            device=where, on_progress=on_stage,
        )  # fmt: skip
    if as_json:
        print_json((numbers_json if numbers_only else comparison_json)(comparison) | origin)
    else:
        _show(comparison)
    if output:
        print_written(*write(comparison, output, origin), as_json=as_json)


def _show(c: "Comparison") -> None:
    from highrank.report.comparison.words import about, about_components, reading_notes, sections, summary

    for side in (c.a, c.b):
        say(f"{side.name} ({about(side)}): {c.split} perplexity {side.perplexity:.2f}")
    say(summary(c))
    for note in (*reading_notes(c), *about_components(c)):
        say(note, style="dim")
    for name, steps in sections(c):
        _show_steps(c, name, [(f"{step.gain:+.2f}", step) for step in steps])
    if c.paper_cases is not None:
        found = [(f"case {x.paper.number}\n{x.step.gain:+.2f}", x.step) for x in c.paper_cases if x.step]
        _show_steps(c, "The paper's six cases", found)
        for case in c.paper_cases:
            if case.step is None:
                say(f'Case {case.paper.number} ("… {case.paper.key} {case.paper.reference}") is not in this text.')
    _show_groups(c)


def _show_groups(c: "Comparison") -> None:
    from highrank.report.comparison.words import gain_of, groupings, token

    for grouping in groupings(c):
        if not grouping.groups:
            continue
        table = Table(title=grouping.title, title_justify="left", show_edge=False)
        for column in ("", "steps", c.a.name, c.b.name, "gain, nats a token"):
            table.add_column(Text(column), justify="right" if column else "left")
        for g in grouping.groups:
            numbers = (f"{g.steps:,}", f"{g.nll_a:.3f}", f"{g.nll_b:.3f}", gain_of(g))
            telling = g.gain_se is not None and abs(g.gain) > 2 * g.gain_se
            table.add_row(Text(token(g.name)), *numbers, style="" if telling else "dim")
        out.print()
        out.print(folded(table))


def _show_steps(c: "Comparison", title: str, steps: "list[tuple[str, Step]]") -> None:
    from highrank.analysis.context import spelt
    from highrank.report.comparison.words import token

    out.print()
    if not steps:
        say(f"{title}: nowhere.")
        return
    table = Table(title=Text(title), title_justify="left", show_lines=True)
    table.add_column("gain", justify="right")
    table.add_column("context, and the word that came", ratio=2)
    for side, colour in zip((c.a, c.b), COLOURS, strict=True):
        table.add_column(Text(side.name, style=colour), ratio=2)
    for label, step in steps:
        context = spelt(step.context, c.level)
        text = Text(_end(context, c.level))
        text.append(" " if c.level == "word" else "").append(token(step.reference), style="bold reverse")
        table.add_row(label, text, *(_said(said, step.reference) for said in (step.a, step.b)))
    out.print(folded(table))


def _end(context: str, level: str) -> str:
    """The last characters of a long context, from a whole word on."""
    if len(context) <= SHORT_CONTEXT:
        return context
    end = context[-SHORT_CONTEXT:]
    return "… " + end.partition(" ")[2] if level == "word" else "…" + end


def _said(said: "Prediction", reference: str) -> Text:
    """The likeliest words, where the word that came stands, and the components that speak."""
    from highrank.report.comparison.words import probability, token

    text = Text()
    for x in said.top:
        text.append(f"{token(x.word)} {probability(x.p)}  ", style="bold" if x.word == reference else "")
    if all(x.word != reference for x in said.top):
        text.append(f"({token(reference)} {probability(said.p_reference)}, rank {said.rank:,})", style="bold")
    for component in said.components[:2]:
        share = "" if component.share is None else f", share {probability(component.share)}"
        words = " ".join(token(x.word) for x in component.top)
        text.append(f"\n#{component.index} weight {probability(component.weight)}{share}: {words}", style="dim")
    return text

"""A comparison as Markdown."""

import re

from highrank.analysis.compare import Case, Comparison, Step
from highrank.analysis.context import spelt
from highrank.analysis.prediction import Candidate, Component
from highrank.report.comparison.words import (
    Grouping,
    about,
    about_components,
    gain_of,
    groupings,
    probability,
    reading_notes,
    sections,
    speaking,
    summary,
    title,
    token,
)


def markdown(c: Comparison, figure: str | None = None) -> str:
    parts = [
        f"# {_md(title(c))}",
        f"{_md(c.corpus)}, {c.split} split, {c.tokens:,} tokens predicted.",
        "| | model | perplexity | nats a token |\n|---|---|---|---|\n"
        + "\n".join(
            f"| {x} | {_md(side.name)} ({about(side)}) | {side.perplexity:.2f} | {side.nll:.4f} |"
            for x, side in (("A", c.a), ("B", c.b))
        ),
        _md(summary(c)),
        "\n".join(f"- {_md(note)}" for note in reading_notes(c)),
        "## Where the difference lies",
    ]
    if figure:
        parts.append(f"![Gains by group]({figure})")
    for table in groupings(c):
        parts += [f"### {table.title}", _md(table.explanation), _md_groups(c, table)]
    if c.paper_cases is not None:
        parts.append("## The paper's six cases")
        for case in c.paper_cases:
            parts += _md_case(c, case)
    for name, steps in sections(c):
        parts.append(f"## {_md(name)}")
        if not steps:
            parts.append("Nowhere.")
        for i, step in enumerate(steps, start=1):
            parts.append(f"### {i}. {step.gain:+.2f} nats: {_code(token(step.reference))}")
            parts += _md_step(c, step)
    if notes := about_components(c):
        parts += ["## About components", *map(_md, notes)]
    return "\n\n".join(parts) + "\n"


def _md_groups(c: Comparison, table: Grouping) -> str:
    if not table.groups:
        return "No such group."
    lines = [f"| | steps | {_md(c.a.name)} | {_md(c.b.name)} | gain |", "|---|---:|---:|---:|---:|"]
    for g in table.groups:
        name = _code(token(g.name)) if table.of_words else g.name
        lines.append(f"| {name} | {g.steps:,} | {g.nll_a:.3f} | {g.nll_b:.3f} | {gain_of(g)} |")
    return "\n".join(lines)


def _md_case(c: Comparison, case: Case) -> list[str]:
    paper = case.paper
    heading = f"### Case {paper.number}: {_code(paper.reference)} after {_code('… ' + paper.key)}"
    said = f"In the paper, MoS said {_md(paper.mos)}; MoC said {_md(paper.moc)}."
    if case.step is None:
        return [heading, f"Not found in this text. {said}"]
    return [f"{heading}, {case.step.gain:+.2f} nats", *_md_step(c, case.step), said]


def _md_step(c: Comparison, step: Step) -> list[str]:
    context, rest = spelt(step.context, c.level), spelt(step.continuation, c.level)
    gap = " " if c.level == "word" else ""
    quote = f"> … {_md(context)}{gap}**{_md(token(step.reference))}**{gap}{_md(rest)}"
    lines = ["| | likeliest words | the word that came |", "|---|---|---|"]
    components = []
    for side, said in ((c.a, step.a), (c.b, step.b)):
        lines.append(
            f"| {_md(side.name)} | {_md_words(said.top)} | {probability(said.p_reference)}, rank {said.rank:,} |"
        )
        if said.components:
            shown, rest = speaking(said)
            components.append(f"Components of {_md(side.name)}:\n\n" + "\n".join(map(_md_component, shown)))
            components[-1] += f"\n- {rest}" if rest else ""
    return [quote, f"Token {step.position:,}.", "\n".join(lines), *components]


def _md_component(component: Component) -> str:
    share = "" if component.share is None else f", share {probability(component.share)}"
    return f"- {component.index} (weight {probability(component.weight)}{share}): {_md_words(component.top)}"


def _md_words(candidates: list[Candidate]) -> str:
    return ", ".join(f"{_code(token(x.word))} {probability(x.p)}" for x in candidates)


def _md(text: str) -> str:
    """Text whose characters mean themselves in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|#~$&])", r"\\\1", text)


def _code(word: str) -> str:
    """A word as code; with the two marks that code cannot show everywhere, as text."""
    return _md(word) if "`" in word or "|" in word else f"`{word}`"

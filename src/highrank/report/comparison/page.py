"""A comparison as one HTML page that needs nothing else: no script, no font, no network; light and dark."""

from html import escape

from highrank.analysis.bands import Group
from highrank.analysis.compare import Case, Comparison, Side, Step
from highrank.analysis.prediction import Candidate, Component, Prediction
from highrank.data.corpus import EOS
from highrank.report.comparison.words import (
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

# A and B in Okabe and Ito's blue and vermilion (their lighter neighbours on a dark page); names always say it as well.
STYLE = """
:root { color-scheme: light dark; --page: #fbfbfa; --card: #fff; --ink: #1c1d1f; --soft: #666a70; --line: #e0e0dc;
  --shade: #00000026; --a: #0072b2; --b: #b84e00; --a-bar: #0072b226; --b-bar: #d55e0026;
  --mark: #f0e442; --mark-ink: #1c1d1f; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --card: #1e2125; --ink: #e8e8e6; --soft: #9da2a9;
  --line: #33373d; --shade: #00000099; --a: #56b4e9; --b: #f0a35e; --a-bar: #56b4e933; --b-bar: #f0a35e30;
  --mark: #6d6512; --mark-ink: #fff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 3rem 0 .75rem; padding-top: .5rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.6rem 0 .2rem; }
p { margin: .4rem 0; } .soft, nav { color: var(--soft); } a { color: inherit; }
.a { color: var(--a); } .b { color: var(--b); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: 1rem 0 1.5rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
.pair + p { margin-top: 1.1rem; }
@media (max-width: 700px) { .pair { grid-template-columns: 1fr; } }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.15rem; }
.side { border-top: 3px solid currentColor; } .side > .big { color: var(--ink); }
.name { font-weight: 650; overflow-wrap: anywhere; } .big { font-size: 1.9rem; font-weight: 650; line-height: 1.2; }
ul.notes { padding-left: 1.2rem; } ul.notes li { margin: .25rem 0; }
.scroll { overflow-x: auto; background: linear-gradient(to right, var(--page) 40%, transparent) left / 2.5rem 100%
    no-repeat local, linear-gradient(to left, var(--page) 40%, transparent) right / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / .9rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) right / .9rem 100% no-repeat scroll; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: .86rem; } td, th { padding: .22rem .6rem; }
tbody th { color: inherit; font-weight: inherit; font-size: inherit; white-space: nowrap; }
tbody :is(td, th) { border-top: 1px solid var(--line); } .n { text-align: right; white-space: nowrap; }
td svg { display: block; width: 220px; height: 18px; }
article { margin: 1rem 0; } article header { display: flex; gap: .9rem; align-items: baseline; flex-wrap: wrap; }
article h3 { margin: 0; }
.gain { font-weight: 700; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
blockquote { margin: .5rem 0 .9rem; font: 1.02rem/1.6 Georgia, "Times New Roman", serif; overflow-wrap: anywhere; }
mark { background: var(--mark); color: var(--mark-ink); padding: .05em .3em; border-radius: 4px; font-weight: 650; }
.rest, .eos { color: var(--soft); } .eos { font-size: .82em; }
ol.words { list-style: none; margin: .3rem 0 0; padding: 0; font-variant-numeric: tabular-nums; }
ol.words li { position: relative; display: flex; justify-content: space-between; gap: 1rem; padding: .06rem .5rem;
  margin: 2px 0; } ol.words li > * { position: relative; overflow-wrap: anywhere; } ol.words .came { font-weight: 700; }
ol.words .bar { position: absolute; inset: 0 auto 0 0; border-radius: 3px; }
.in-a .bar { background: var(--a-bar); } .in-b .bar { background: var(--b-bar); }
li.below { border-top: 1px dashed var(--line); }
details { margin-top: .55rem; font-size: .92rem; } summary { cursor: pointer; color: var(--soft); }
details table { margin-top: .3rem; } details td { vertical-align: top; } details td.n { width: 1%; }
.word { display: inline-block; white-space: nowrap; margin-right: .9em; }
@media (max-width: 700px) { main { padding-top: 1.5rem; } .scroll table { font-size: .86rem; }
  .scroll td, .scroll th { padding: .22rem .3rem; } .scroll thead th { white-space: normal; vertical-align: bottom; }
  .scroll thead th:last-child { white-space: nowrap; }
  .scroll tbody th { position: sticky; left: 0; background: var(--page); }
  td svg { width: 110px; } }
details { overflow-x: auto; }
@page { margin: 16mm; }
@media print { nav { display: none; } article, tr, figure { break-inside: avoid; }
  h2, h3, h3 + p, article header { break-after: avoid; } .scroll { overflow: visible; background: none; }
  .scroll table { font-size: .86rem; }
  .bar, mark { print-color-adjust: exact; } }
"""


def page(c: Comparison) -> str:
    links = [("groups", "where the difference lies")]
    links += [("paper", "the paper's cases")] if c.paper_cases is not None else []
    links += [("ahead", f"{c.a.name} ahead"), ("behind", f"{c.b.name} ahead")]
    body = [
        f"<h1><span class=a>{escape(c.a.name)}</span> against <span class=b>{escape(c.b.name)}</span></h1>",
        f"<p class=soft>{escape(c.corpus)}, {c.split} split, {c.tokens:,} tokens predicted</p>",
        "<nav>" + " ".join(f'<a href="#{key}">{escape(text)}</a>' for key, text in links) + "</nav>",
        f"<div class=pair>{_side_card(c.a, 'a')}{_side_card(c.b, 'b')}</div>",
        f"<p>{escape(summary(c))}</p>",
        "<ul class='notes soft'>" + "".join(f"<li>{escape(note)}" for note in reading_notes(c)) + "</ul>",
        "<h2 id=groups>Where the difference lies</h2>",
    ]
    for table in groupings(c):
        body += [f"<h3>{table.title}</h3><p class=soft>{table.explanation}</p>", _group_table(c, table.groups)]
    if c.paper_cases is not None:
        body.append("<h2 id=paper>The paper's six cases</h2>")
        body += [_case(c, case) for case in c.paper_cases]
    for key, (name, steps) in zip(("ahead", "behind"), sections(c), strict=True):
        body.append(f"<h2 id={key}>{escape(name)}</h2>")
        body += [_step(c, step, f"{i}") for i, step in enumerate(steps, start=1)] or ["<p>Nowhere.</p>"]
    if notes := about_components(c):
        body.append("<h2>About components</h2>" + "".join(f"<p>{escape(note)}</p>" for note in notes))
    return (
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n"
        "<meta name=viewport content='width=device-width, initial-scale=1'>\n"
        f"<title>{escape(title(c))}</title>\n<style>{STYLE}</style>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</html>\n"
    )


def _side_card(side: Side, which: str) -> str:
    return (
        f"<div class='card side {which}'><div class=name>{escape(side.name)}</div><div class=soft>{about(side)}</div>"
        f"<div class=big>{side.perplexity:.2f}</div>"
        f"<div class=soft>perplexity ({side.nll:.4f} nats a token)</div></div>"
    )


def _group_table(c: Comparison, groups: list[Group]) -> str:
    if not groups:
        return "<p>No such group.</p>"
    ends = [g.gain + sign * 2 * (g.gain_se or 0.0) for g in groups for sign in (-1, 1)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    rows = "".join(
        f"<tr><th scope=row>{escape(token(g.name))}<td class=n>{g.steps:,}<td class=n>{g.nll_a:.3f}"
        f"<td class=n>{g.nll_b:.3f}<td class=n>{gain_of(g)}<td>{_interval(g, low, high)}"
        for g in groups
    )
    return (
        f"<div class=scroll><table><thead><tr><td><th scope=col class=n>steps"
        f"<th scope=col class='n a'>{escape(c.a.name)}<th scope=col class='n b'>{escape(c.b.name)}"
        f"<th scope=col class=n>gain<th scope=col>gain ± 2 standard errors</thead><tbody>{rows}</tbody></table></div>"
    )


def _interval(group: Group, low: float, high: float) -> str:
    """A dot with whiskers on the table's common scale, zero marked."""

    def x(value: float) -> float:
        return round(6 + 208 * (value - low) / (high - low or 1.0), 1)

    reach = 2 * (group.gain_se or 0.0)
    side = "a" if group.gain > 0 else "b"
    y, zero = 9, x(0.0)
    return (
        f"<svg viewBox='0 0 220 18' aria-hidden=true><line x1={zero} x2={zero} y1=0 y2=18 stroke='var(--soft)' "
        f"stroke-width=1 /><line x1={x(group.gain - reach)} x2={x(group.gain + reach)} y1={y} y2={y} "
        f"stroke='var(--{side})' stroke-width=2 /><circle cx={x(group.gain)} cy={y} r=4 fill='var(--{side})' /></svg>"
    )


def _case(c: Comparison, case: Case) -> str:
    paper = case.paper
    said = (
        f"<p class=soft>In the paper, MoS said {_paper_list(paper.mos, paper.reference)}; "
        f"MoC said {_paper_list(paper.moc, paper.reference)}.</p>"
    )
    if case.step is None:
        key = f"… {paper.key} {paper.reference}"
        why = f"<p>“{escape(key)}” is not in this text.</p>"
        return f"<article class=card><h3>Case {paper.number}</h3>{why}{said}</article>"
    return _step(c, case.step, f"Case {paper.number}", said)


def _paper_list(said: str, reference: str) -> str:
    return ", ".join(_bold(x, x.split()[0] == reference) for x in said.split(", "))


def _bold(text: str, came: bool) -> str:
    return f"<b>{escape(text)}</b>" if came else escape(text)


def _step(c: Comparison, step: Step, number: str, more: str = "") -> str:
    better, side = (c.a, "a") if step.gain > 0 else (c.b, "b")
    gap = " " if c.level == "word" else ""
    sides = "".join(_prediction(s, said, step.reference, x) for s, said, x in ((c.a, step.a, "a"), (c.b, step.b, "b")))
    return (
        f"<article class=card><header><h3>{number}</h3><span class='gain {side}'>{step.gain:+.2f} nats</span>"
        f"<span class=soft>{escape(better.name)} is ahead; token {step.position:,}</span></header>"
        f"<blockquote>… {_text(step.context, gap)}{gap}<mark>{escape(token(step.reference))}</mark>"
        f"{gap}<span class=rest>{_text(step.continuation, gap)}</span></blockquote>"
        f"<div class=pair>{sides}</div>{more}</article>"
    )


def _text(tokens: list[str], gap: str) -> str:
    return gap.join(f"<span class=eos>{escape(t)}</span>" if t == EOS else escape(t) for t in tokens)


def _prediction(side: Side, said: Prediction, reference: str, which: str) -> str:
    rows = [_word(x, x.word == reference) for x in said.top]
    if all(x.word != reference for x in said.top):
        rows.append(
            f"<li class='came below'><span>{escape(token(reference))}</span>"
            f"<span>{probability(said.p_reference)}, rank {said.rank:,}</span>"
        )
    return (
        f"<div class=in-{which}><div class='name {which}'>{escape(side.name)}</div>"
        f"<ol class=words>{''.join(rows)}</ol>{_components(said, reference)}</div>"
    )


def _word(x: Candidate, came: bool) -> str:
    return (
        f"<li{' class=came' if came else ''}><span class=bar style='width:{100 * x.p:.1f}%'></span>"
        f"<span>{escape(token(x.word))}</span><span>{probability(x.p)}</span>"
    )


def _components(said: Prediction, reference: str) -> str:
    if not said.components:
        return ""
    shown, rest = speaking(said)
    has_share = shown[0].share is not None
    rows = "".join(_component(x, reference) for x in shown)
    share = "<th scope=col class=n>share" if has_share else ""
    speak = ", ".join(f"{x.index} ({probability(x.weight)})" for x in shown[:3])
    alone = "its likeliest words" if has_share else "what it would say alone"
    return (
        f"<details><summary>Components by weight: {speak}{', …' if len(said.components) > 3 else ''}</summary>"
        "<table><thead><tr><th scope=col>k<th scope=col class=n>weight"
        f"{share}<th scope=col>{alone}</thead><tbody>{rows}</tbody></table>"
        f"<div class=soft>{rest}</div></details>"
    )


def _component(x: Component, reference: str) -> str:
    share = "" if x.share is None else f"<td class=n>{probability(x.share)}"
    words = (
        f"<span class=word>{_bold(token(w.word), w.word == reference)} <span class=soft>{probability(w.p)}</span>"
        for w in x.top
    )
    return f"<tr><th scope=row>{x.index}<td class=n>{probability(x.weight)}{share}<td>{'</span> '.join(words)}</span>"

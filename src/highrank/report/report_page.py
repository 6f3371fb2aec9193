"""The report as one HTML file: no script, nothing loaded from anywhere, light or dark as the reader prefers."""

import html
import re
from importlib import resources

from highrank.report.choice import trained_for
from highrank.report.figures.curves import COLOURS
from highrank.report.results import Cell, Column, Origin, Table, address, as_good, ours, printed

VARIABLES = {"softmax": "softmax", "moc": "moc", "mos": "mos", "other": "other", "paper": "theirs"}


def page(
    title: str,
    lead: str,
    cards: list[tuple[str, str, str]],  # a number, what it is, and how it was come by
    tables: list[Table],
    costs: str,  # Markdown: paragraphs and tables
    pictures: dict[str, tuple[str, str]],  # name -> caption, SVG
    lists: dict[str, list[str]],  # heading -> items
    runs: list[dict[str, str]],  # a row a record
    link: str,
) -> str:
    style = resources.files("highrank.report").joinpath("templates", "page.css").read_text(encoding="utf-8")
    nav = [(t.name, t.title) for t in tables] + [("cost", "What it costs")]
    nav += ([("curves", "Curves")] if pictures else []) + [("not-run", "Not run"), ("runs", "Every run")]
    body = [f"<h1>{_text(title)}</h1>", f"<p>{_text(lead)}</p>", _cards(cards)]
    body.append("<nav>" + "".join(f'<a href="#{name}">{_text(text)}</a>' for name, text in nav) + "</nav>")
    body += [_section(table, link) for table in tables]
    body.append(f'<h2 id="cost">What it costs</h2>{_from_markdown(costs)}')
    if pictures:
        body.append('<h2 id="curves">Curves</h2>')
        body += [_figure(name, caption, svg) for name, (caption, svg) in pictures.items()]
    for heading, items in lists.items():
        anchor = heading.lower().replace(" ", "-")
        body.append(f'<h2 id="{anchor}">{_text(heading)}</h2><ul>{"".join(f"<li>{_text(i)}</li>" for i in items)}</ul>')
    body.append(f'<h2 id="runs">Every run</h2>{_runs(runs, link)}')
    body.append("<footer>Made by <code>highrank report</code> from the records in results/.</footer>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    """Escaped, with `code` as in Markdown."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _cards(cards: list[tuple[str, str, str]]) -> str:
    one = "<div class=card><span>{}</span><b>{}</b><span>{}</span></div>"
    return f"<div class=cards>{''.join(one.format(*(_text(t) for t in (what, n, p))) for n, what, p in cards)}</div>"


def _section(table: Table, link: str) -> str:
    source = f" The paper's {' and '.join(f'table {n}' for n in table.tables)}." if table.tables else ""
    head = f'<h2 id="{table.name}">{_text(table.title)}</h2><p>{_text(table.about + source)}</p>'
    return head + _table(table, link)


def _table(table: Table, link: str) -> str:
    grouped = any(column.paper for column in table.columns)
    tall = " rowspan=2" if grouped else ""
    first = f"<th scope=col class=left{tall}>{_text(table.label)}</th>"
    for column in table.columns:
        first += f"<th {'scope=colgroup colspan=2' if column.paper else 'scope=col' + tall}>{_text(column.name)}</th>"
    if table.about_column:
        first += f"<th scope=col class=left{tall}>{_text(table.about_column)}</th>"
    pair = "<th scope=col>paper</th><th scope=col>ours</th>"
    second = f"<tr>{pair * sum(column.paper for column in table.columns)}</tr>" if grouped else ""
    lines = []
    for row in table.rows:
        line = f"<th scope=row>{_text(row.label)}</th>"
        for column, cell in zip(table.columns, row.cells, strict=True):
            line += f"<td class=paper>{printed(cell, column)}</td>" if column.paper else ""
            line += _ours(cell, column, link)
        line += f"<td class=words>{_text(row.about)}</td>" if table.about_column else ""
        lines.append(f"<tr>{line}</tr>")
    return (
        f"<div class=scroll><table><thead><tr>{first}</tr>{second}</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _ours(cell: Cell, column: Column, link: str) -> str:
    text = ours(cell, column)
    if cell.ours is None or cell.origin is None:
        return f"<td class=none>{text}</td>"
    where = address(link, cell.origin.path)
    kind = "ours good" if as_good(cell, column) else "ours"
    return (
        f'<td class="{kind}"><a href="{html.escape(where)}" title="{html.escape(_told(cell.origin))}">{text}</a></td>'
    )


def _told(origin: Origin) -> str:
    """What hovering over a number tells."""
    parts = [trained_for(origin) or ", ".join(filter(None, (origin.about, origin.machine)))]
    parts += [f"seed {origin.seed}"] if origin.seed is not None else []
    parts += [f"commit {origin.commit[:10]}"] if origin.commit else []
    return "; ".join(filter(None, parts))


def _figure(name: str, caption: str, svg: str) -> str:
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)
    wide = " class=wide" if width and float(width[1]) > 500 else ""  # two panels: too small to read on a narrow screen
    told = f"figure-{name}-caption"  # it names the picture to who cannot see it
    picture = inline(name, svg).replace("<svg", f'<svg role="img" aria-labelledby="{told}"', 1)
    caption = f'<figcaption id="{told}">{_text(caption)}</figcaption>'
    return f'<figure id="figure-{name}"{wide}><div class=scroll>{picture}</div>{caption}</figure>'


def inline(name: str, svg: str) -> str:
    """A matplotlib SVG for the page: its own ids, the page's font, and colours that follow the theme."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)([^)"]+)', rf"\g<1>{name}-\2", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px; font-family: inherit", svg)
    for kind, colour in COLOURS.items():
        svg = re.sub(colour, f"var(--{VARIABLES[kind]})", svg, flags=re.I)
    for colour, follows in (("#000000", "currentColor"), ("#ffffff", "var(--paper)"), ("#cccccc", "var(--line)")):
        svg = svg.replace(colour, follows)
    return svg


def _runs(runs: list[dict[str, str]], link: str) -> str:
    if not runs:
        return "<p>None yet.</p>"
    first, second, *others = [_text(key) for key in runs[0] if key != "path"]
    head = "".join(f"<th scope=col class=left>{key}</th>" for key in (first, second))
    head += "".join(f"<th scope=col>{key}</th>" for key in others)
    lines = []
    for run in runs:
        name, what, *rest = [_text(value) for key, value in run.items() if key != "path"]
        line = f'<th scope=row><a href="{html.escape(address(link, run["path"]))}">{name}</a></th>'
        line += f"<td class=words>{what}</td>" + "".join(f"<td>{value}</td>" for value in rest)
        lines.append(f"<tr>{line}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f"<div class=scroll><table class=dense>{body}</table></div>"


def _from_markdown(text: str) -> str:
    """Paragraphs and tables; the first column of a table holds words, the others numbers."""
    parts = []
    for block in filter(None, map(str.strip, text.split("\n\n"))):
        lines = block.splitlines()
        if not block.startswith("|"):
            parts.append(f"<p>{_text(block)}</p>")
            continue
        rows = [[_text(cell.strip()) for cell in line.strip("|").split("|")] for line in lines if "|---" not in line]
        (first, *others), *body = rows
        head = f"<th scope=col class=left>{first}</th>" + "".join(f"<th scope=col>{text}</th>" for text in others)
        cells = "".join(
            f"<tr><th scope=row>{one}</th>{''.join(f'<td>{t}</td>' for t in rest)}</tr>" for one, *rest in body
        )
        parts.append(f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table></div>")
    return "".join(parts)

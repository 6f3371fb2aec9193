"""A report on disk: report.md, report.html and figures/ in one folder, with links back to the records."""

import os
from pathlib import Path

from highrank.files import replacing, write_text
from highrank.recipes import RECIPES
from highrank.report import Report, cost
from highrank.report.choice import best, of_state, origin, runs_of
from highrank.report.figures.curves import CORPORA, close, figures, save
from highrank.report.perplexity import in_paper
from highrank.report.records import Record
from highrank.report.report_page import page
from highrank.report.results import address, markdown, unbroken

TITLE = "Breaking the softmax bottleneck, run again"


def write(report: Report, folder: Path) -> list[Path]:
    """Returns the files written, the page first."""
    link = Path(os.path.relpath(report.results, folder)).as_posix()
    files, pictures = [], {}
    for name, (caption, figure) in figures(report.records, report.analyses).items():
        for form in ("png", "svg"):
            path = folder / "figures" / f"{name}.{form}"
            data = save(figure, form)
            with replacing(path) as temporary:
                temporary.write_bytes(data)
            files.append(path)
        pictures[name] = caption, data.decode()  # the SVG
        close(figure)
    captions = {name: caption for name, (caption, _) in pictures.items()}
    write_text(folder / "report.md", unbroken(_markdown(report, captions, link)))
    runs = [_run(record) for record in report.records]
    costs = cost.cost_text(report.results)
    lead = f"{_lead(report)} Green: at least as good as the paper."
    html = page(TITLE, lead, _cards(report.records), report.tables, costs, pictures, _lists(report), runs, link)
    write_text(folder / "report.html", html)
    return [folder / "report.html", folder / "report.md", *files]


def _lead(report: Report) -> str:
    """What this is, in two sentences."""
    cells = [cell for table in report.tables for row in table.rows for cell in row.cells if cell.applies]
    filled = sum(cell.ours is not None for cell in cells)
    return (
        "Every table of Yang et al. (ICLR 2018) that this code can run, the paper's numbers beside ours. "
        f"{len(report.records)} runs fill {filled} of {len(cells)} cells; what has not been run says so."
    )


def _cards(records: list[Record]) -> list[tuple[str, str, str]]:
    """The best test perplexities so far, chosen on validation: number, what, and how it was come by."""
    cards = []
    for table, (prefix, corpus) in enumerate(CORPORA.items(), start=1):
        mine = [r for name in RECIPES if name.startswith(f"{prefix}-") for r in runs_of(name, records)]
        for states, what in ((("trained", "finetuned"), ""), (("dynamic",), ", dynamic evaluation")):
            found = [(*one, state) for state in states if (one := best(mine, of_state(state)))]
            if found:
                record, scores, state = min(found, key=lambda one: one[1]["valid_ppl"])
                where = origin(record, scores)
                how = f"`{record.recipe}`, {(where.seconds or 0) / 60:.0f} min of one {where.machine}"
                printed = in_paper(RECIPES[record.recipe], state, table)
                how += f"; the paper: {printed.test:.2f}" if printed else ""
                cards.append((f"{scores['test_ppl']:.2f}", f"{corpus}, test perplexity{what}", how))
    return cards


def _lists(report: Report) -> dict[str, list[str]]:
    missing = [f"{table.title}: {'; '.join(gone)}" for table in report.tables if (gone := table.missing())]
    return {"Not run": missing + [f"The paper's {text}" for text in report.untouched()]}


def _run(record: Record) -> dict[str, str]:
    data = record.data
    changed = " ".join(f"{key}={value}" for key, value in record.overrides.items())
    adapted = of_state("dynamic")(record)
    return {
        "path": record.path,
        "record": record.file.removesuffix(".json"),
        "what": f"`{record.recipe}`"
        + (", finetuned" if record.finetuned else "")
        + (f" with {changed}" if changed else ""),
        "epochs": str(data["epochs"]),
        "minutes": f"{data['seconds'] / 60:.1f}",
        "valid / test": f"{data['valid_ppl']:.2f} / {data['test_ppl']:.2f}",
        "dynamic": f"{adapted['valid_ppl']:.2f} / {adapted['test_ppl']:.2f}" if adapted else "",
        "seed": str(data["seed"]),
        "commit": (record.commit() or "")[:7],
        "machine": record.machine(),
    }


def _markdown(report: Report, captions: dict[str, str], link: str) -> str:
    parts = [f"# {TITLE}", _lead(report)]
    for table in report.tables:
        source = f" The paper's {' and '.join(f'table {n}' for n in table.tables)}." if table.tables else ""
        parts += [f"## {table.title}", table.about + source, markdown(table, link)]
    parts += ["## What it costs", cost.cost_text(report.results)]
    if captions:
        parts.append("## Curves")
        parts += [f"![{caption}](figures/{name}.png)\n\n{caption}" for name, caption in captions.items()]
    for heading, items in _lists(report).items():
        parts += [f"## {heading}", "\n".join(f"- {item}" for item in items)]
    runs = [_run(record) for record in report.records]
    if runs:
        names = [key for key in runs[0] if key != "path"]
        lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        for run in runs:
            values = [f"[{run['record']}]({address(link, run['path'])})", *(run[key] for key in names[1:])]
            lines.append(f"| {' | '.join(values)} |")
        parts += ["## Every run", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"

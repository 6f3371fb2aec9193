"""One row a recipe: the best run so far beside the paper's numbers. The README shows it under "results"."""

from typing import Any

from highrank.recipes import RECIPES
from highrank.report.choice import best, of_state, runs_of
from highrank.report.records import Record
from highrank.report.results import NOT_RUN, address

HEADINGS = ("recipe", "trained for", "valid / test", "+ dynamic evaluation", "the paper's", "finetuned", "record")


def overview(records: list[Record], link: str) -> str:
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    for recipe in RECIPES.values():
        mine = runs_of(recipe.name, records)
        if not recipe.paper and not mine:
            continue
        plain = next((p for p in recipe.paper if not p.finetuned), None)
        tuned = next((p for p in recipe.paper if p.finetuned), None)
        paper = " | ".join(_pair(p.valid, p.test) if p else "-" for p in (plain, tuned))
        found = best(mine, lambda record: record.data)
        if found is None:
            lines.append(f"| `{recipe.name}` | {NOT_RUN} | {NOT_RUN} | {NOT_RUN} | {paper} | |")
            continue
        record, data = found
        dynamic = of_state("dynamic")(record)
        adapted = _pair(dynamic["valid_ppl"], dynamic["test_ppl"]) if dynamic else NOT_RUN
        ours = f"**{_pair(data['valid_ppl'], data['test_ppl'])}**"
        source = f"[record]({address(link, record.path)})"
        lines.append(f"| `{recipe.name}` | {_time(record, data)} | {ours} | {adapted} | {paper} | {source} |")
    return "\n".join(lines)


def _time(record: Record, data: dict[str, Any]) -> str:
    finetuned = ", finetuned" if record.finetuned else ""
    changed = "".join(f", {key}={value}" for key, value in record.overrides.items())
    return f"{data['seconds'] / 60:.1f} min of one {record.machine()}, {data['epochs']} epochs{finetuned}{changed}"


def _pair(valid: float, test: float) -> str:
    return f"{valid:.2f} / {test:.2f}"

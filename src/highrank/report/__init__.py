"""results/ -> tables, ours beside the paper's. Nothing is typed by hand: the README's tables come from here.

results/runs/*.json         run records: a run's summary.json, with dynamic evaluation where it was done
results/benchmarks/*.csv    what benchmarks/ wrote
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highrank.errors import UserError
from highrank.files import read_json, write_text
from highrank.recipes import RECIPES, PaperResult

NOT_RUN = "not run"
BEGIN, END = "<!-- {name}: made by 'highrank report' -->", "<!-- end of {name} -->"


@dataclass(frozen=True)
class Record:
    file: str
    data: dict[str, Any]

    @property
    def recipe(self) -> str:
        return str(self.data["recipe"])


def load_records(results: Path) -> list[Record]:
    """Every run record, by recipe in the order of `highrank recipes`, then by time trained."""
    records = []
    for path in sorted((results / "runs").glob("*.json")):
        data = read_json(path, "run record")
        missing = {"recipe", "epochs", "seconds", "valid_ppl", "test_ppl", "seed", "provenance"} - data.keys()
        if missing:
            raise UserError(f"{path} is not a run record: it lacks {', '.join(sorted(missing))}.")
        records.append(Record(path.name, data))
    order = list(RECIPES)
    return sorted(records, key=lambda r: (order.index(r.recipe) if r.recipe in order else 99, r.data["seconds"]))


def cells(records: list[Record]) -> list[dict[str, Any]]:
    """One entry a cell of the paper's tables that a recipe stands for, and one a record: paper value and ours."""
    rows: list[dict[str, Any]] = []
    for recipe in RECIPES.values():
        mine = [r for r in records if r.recipe == recipe.name]
        if not recipe.paper and not mine:
            continue
        ours = [_ours(record) for record in mine] or [{"record": None}]
        rows += [{"recipe": recipe.name, **_paper(recipe.paper), **our} for our in ours]
    return rows


def _paper(results: tuple[PaperResult, ...]) -> dict[str, Any]:
    plain = next((p for p in results if not p.finetuned), None)
    tuned = next((p for p in results if p.finetuned), None)
    return {
        "paper_valid": plain.valid if plain else None,
        "paper_test": plain.test if plain else None,
        "paper_finetuned_valid": tuned.valid if tuned else None,
        "paper_finetuned_test": tuned.test if tuned else None,
    }


def _ours(record: Record) -> dict[str, Any]:
    data = record.data
    return {
        "record": record.file,
        "valid": data["valid_ppl"],
        "test": data["test_ppl"],
        "dynamic_valid": data.get("dynamic", {}).get("valid_ppl"),
        "dynamic_test": data.get("dynamic", {}).get("test_ppl"),
        "epochs": data["epochs"],
        "finetuned": data.get("stage", 0) > 0,
        "seconds": data["seconds"],
        "seed": data["seed"],
        "commit": data["provenance"]["commit"],
        "machine": data["provenance"]["machine"],
    }


def results_table(records: list[Record]) -> str:
    columns = ("recipe", "trained for", "valid / test", "+ dynamic evaluation", "the paper's", "finetuned", "record")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in cells(records):
        paper = _pair(row["paper_valid"], row["paper_test"]) or "-"
        tuned = _pair(row["paper_finetuned_valid"], row["paper_finetuned_test"]) or "-"
        if row["record"] is None:
            lines.append(f"| `{row['recipe']}` | {NOT_RUN} | {NOT_RUN} | {NOT_RUN} | {paper} | {tuned} | |")
            continue
        time = f"{row['seconds'] / 60:.1f} min of one {row['machine'].removeprefix('NVIDIA ')}, {row['epochs']} epochs"
        ours = f"**{_pair(row['valid'], row['test'])}**"
        dynamic = _pair(row["dynamic_valid"], row["dynamic_test"]) or NOT_RUN
        link = f"[record](results/runs/{row['record']})"
        lines.append(f"| `{row['recipe']}` | {time} | {ours} | {dynamic} | {paper} | {tuned} | {link} |")
    return "\n".join(lines)


def _pair(valid: float | None, test: float | None) -> str:
    return "" if valid is None or test is None else f"{valid:.2f} / {test:.2f}"


def cost_tables(results: Path) -> str:
    """The loss on a CPU and the training step on a GPU, from the benchmarks' CSV files."""
    parts = []
    loss = [r for r in _read_csv(results / "benchmarks" / "mos_nll_cpu.csv") if r["median_ms"]]
    loss = [r for r in loss if r["size"] == loss[0]["size"]]
    if loss:
        one = loss[0]
        ours = next(float(r["median_ms"]) for r in loss if r["implementation"] == "highrank, chunked")
        parts.append(
            f"The loss of a mixture of {one['K']} softmaxes at Penn Treebank's size (N={one['N']}, D={one['D']}, "
            f"V={int(one['V']):,}, {one['dtype']}), forward and backward, on a CPU ({one['machine']}):\n"
        )
        parts.append("| implementation | ms | times ours | extra memory, MiB |\n|---|---|---|---|")
        for r in loss:
            ms = float(r["median_ms"])
            parts.append(f"| {r['implementation']} | {ms:,.0f} | {ms / ours:.2f} | {float(r['extra_mib']):,.0f} |")
    steps = [r for r in _read_csv(results / "benchmarks" / "step_h200.csv") if r["median_ms"]]
    steps = [r for r in steps if r["how"] == "mixed, graphs" and not r["recipe"].endswith("-best")]
    if steps:
        parts.append(
            f"\nA whole training step of 70 words a column on one {steps[0]['machine']} (mixed precision, "
            "CUDA graphs), each mixture beside the softmax baseline at the same batch size:\n"
        )
        columns = ("recipe", "batch", "ms a step", "words a second", "over the softmax", "in the paper")
        parts.append(f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|")
        softmax = {r["recipe"][:3]: float(r["median_ms"]) for r in steps if r["recipe"].endswith("softmax")}
        # Its table 9, "bs".
        reported = {"ptb-mos": "1.9x", "ptb-mos-5": "1.2x", "ptb-mos-10": "1.6x"}
        reported |= {"wt2-mos": "2.5x", "wt2-mos-5": "1.3x", "wt2-mos-10": "1.9x", "1b-mos": "3.8x"}
        for r in steps:
            ms = float(r["median_ms"])
            over = f"{ms / softmax[r['recipe'][:3]]:.2f}x"
            speed = f"{float(r['tokens_per_second']):,.0f}"
            parts.append(
                f"| `{r['recipe']}` | {r['batch']} | {ms:.2f} | {speed} | {over} | {reported.get(r['recipe'], '-')} |"
            )
    return "\n".join(parts) or f"{NOT_RUN.capitalize()}."


def _read_csv(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def sections(results: Path) -> dict[str, str]:
    return {"results": results_table(load_records(results)), "cost": cost_tables(results)}


def fill(text: str, parts: dict[str, str]) -> str:
    """`text` with each named part put between its two markers."""
    for name, part in parts.items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        if begin not in text or end not in text:
            raise UserError(f"the file lacks the markers {begin} and {end} that the table {name} goes between.")
        before, rest = text.split(begin, 1)
        after = rest.split(end, 1)[1]
        text = f"{before}{begin}\n{part}\n{end}{after}"
    return text


def update(readme: Path, results: Path) -> bool:
    """Renew the tables in `readme`; returns whether anything changed."""
    old = readme.read_text(encoding="utf-8")
    new = fill(old, sections(results))
    if new != old:
        write_text(readme, new)
    return new != old

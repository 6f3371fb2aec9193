"""An analysis as tables, figures and words."""

from pathlib import Path
from typing import Any

from rich.table import Table

from highrank.folded import folded

Record = dict[str, Any]


def write_files(folder: Path, record: Record) -> list[Path]:
    """analysis.json, spectrum.png and spectrum.svg."""
    from highrank.files import write_json
    from highrank.report.figures.spectrum import Curve, draw, draw_use

    write_json(folder / "analysis.json", record)
    title = f"Log-probabilities after {record['tokens']:,} tokens of {_text(record)}"
    first = record["models"][0]
    if "varying" in first:
        spectra = {
            "log-probabilities": first["spectrum"],
            "their part that varies with context": first["varying"]["spectrum"],
            "output matrix": first["output_matrix"]["spectrum"],
        }
        round_off = first["tolerance"] / first["spectrum"]["values"][0]
        return [folder / "analysis.json", *draw_use(folder, spectra, round_off, f"{first['name']}: {title.lower()}")]
    curves = [
        Curve(
            label=f"{model['name']}: rank {'at least ' if model['projected'] else ''}{model['rank']:,}",
            head=model["head"],
            index=model["spectrum"]["index"],
            values=model["spectrum"]["values"],
            total=min(record["tokens"], record["vocabulary"]),
            round_off=None if model["projected"] else model["tolerance"] / model["spectrum"]["values"][0],
        )
        for model in record["models"]
    ]
    return [folder / "analysis.json", *draw(folder, curves, title)]


def tables(record: Record) -> list[Table]:
    """One row a model; for a softmax of transformers also what its output matrix offers, and what is used of it."""
    table = Table(title=f"{_text(record)}: {record['tokens']:,} x {record['vocabulary']:,}")
    for name in ("model", "head", "D", "ppl", "rank", "at most", "effective", "KLD"):
        table.add_column(name, justify="left" if name in ("model", "head") else "right")
    for model in record["models"]:
        kld, mixture = model["kld"], model["head"] in ("moc", "mos")
        table.add_row(
            model["name"],
            f"{model['head']} K={model['n_components']}" if mixture else model["head"],
            str(model["embed_dim"]),
            f"{model['perplexity']:.2f}",
            f"{'>= ' if model['projected'] else ''}{model['rank']:,}",
            f"{model['rank_bound']:,}",
            _number(model["effective_rank"]),
            _kld(kld),
        )
    shown = [table, *(_use_table(model) for model in record["models"] if "varying" in model)]
    return [folded(one) for one in shown]


def _use_table(model: Record) -> Table:
    table = Table("", "rank", "effective", "directions for 90 %", "for 99 % of the variance")
    output, varying = model["output_matrix"], model["varying"]
    table.add_row("output matrix", f"{output['rank']:,}", _number(output["effective_rank"]), "-", "-")
    directions = (f"{varying['directions_90']:,}", f"{varying['directions_99']:,}")
    table.add_row("what varies with context", "-", _number(varying["effective_rank"]), *directions)
    return table


def notes(record: Record) -> str:
    """What the numbers stand for, and no more than they carry."""
    first, full = record["models"][0], min(record["tokens"], record["vocabulary"])
    lines = []
    if record["split"] is None:
        lines += [reading(record, first), ""]
    lines.append(
        f"Rank: singular values above round-off (Press et al.); no matrix of this shape exceeds {full:,}, "
        "a Softmax or MoC not D + 2."
    )
    lines.append(
        "Effective: as many equal singular values would have the same entropy. ppl: perplexity of these tokens."
    )
    if any(model["rank_bound"] == record["tokens"] < record["vocabulary"] for model in record["models"]):
        lines.append(
            f"With fewer tokens than words ({record['vocabulary']:,}) it is the tokens that limit the rank: "
            "take more to see its full height."
        )
    if first["projected"]:
        lines.append(
            f"Through a random projection onto {first['projected']:,} columns: ranks are lower bounds, and only "
            "the top of the spectrum is seen (docs/analysis.md)."
        )
    if first["kld"]:
        contexts, sampled = first["kld"]["contexts"], first["kld"]["standard_error"]
        lines.append(
            f"KLD: mean of KL(P(.|c) || P(.|c')) over all pairs of {contexts:,} contexts, in nats"
            f"{', with its standard error' if sampled else ''}."
        )
    return "\n".join(lines)


def reading(record: Record, model: Record) -> str:
    """A model of transformers in plain English."""
    d, v, t = model["embed_dim"], record["vocabulary"], record["tokens"]
    if model["head"] != "softmax":
        rank = f"at least {model['rank']:,}" if model["projected"] else f"{model['rank']:,}"
        return (
            f"{model['name']} does not end in a plain softmax of a matrix product (its logits are capped, scaled or "
            f"mixed), so the bound D + 2 need not hold for it. On these {t:,} tokens its log-probabilities have rank "
            f"{rank}; no matrix of this shape exceeds {min(t, v):,}."
        )
    bound, varying = model["rank_bound"], model["varying"]
    if bound == min(t, v):
        limit = f"rank at most {bound:,} here: these {t:,} tokens and {v:,} words allow no more"
    else:
        limit = f"rank at most {bound:,} on any text, where the vocabulary would allow {v:,}"
    reached = "all of that" if model["rank"] == bound else f"{model['rank']:,}"
    k90, k99 = varying["directions_90"], varying["directions_99"]
    return (
        f"{model['name']} ends in a softmax over a {v:,} x {d:,} matrix, so its log-probabilities have {limit}. "
        f"On these tokens their rank is {reached}. "
        f"Of their variance from context to context, {k90:,} directions hold 90 % and {k99:,} hold 99 % "
        f"({k99 / d:.0%} of D). "
        "This tells what the model says on this text, not whether a higher rank would predict it better."
    )


def _text(record: Record) -> str:
    return f"{record['corpus']}, {record['split']}" if record["split"] else record["corpus"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _kld(kld: dict[str, Any] | None) -> str:
    """With its standard error, but for a text whose contexts were all taken: nothing is sampled then."""
    if kld is None:
        return "-"
    return f"{kld['mean']:.3f}" + (f" ± {kld['standard_error']:.3f}" if kld["standard_error"] else "")

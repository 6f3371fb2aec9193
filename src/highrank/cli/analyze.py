"""`highrank analyze`: rank, spectrum and pairwise KLD of trained runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import highrank
from highrank.cli.options import AsJson, DataDir, Device, find_device, out, print_json
from highrank.cli.stages import stage_progress
from highrank.errors import UserError

if TYPE_CHECKING:
    import torch

    from highrank.analysis import Analysis
    from highrank.data.corpus import Corpus

CPU_TOKENS = 20_000


def analyze(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, of one corpus; all go into one figure.")],
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    tokens: Annotated[
        str | None,
        typer.Option(
            help=f"How many tokens from the start of the split, or all. Default: all on a GPU, {CPU_TOKENS:,} on a CPU "
            "(all of Penn Treebank's take tens of minutes there). The rank cannot exceed this number."
        ),
    ] = None,
    projection: Annotated[
        int | None,
        typer.Option(
            min=10,
            help="Project the columns at random onto this many, for vocabularies V whose V x V matrix does not fit: "
            "a lower bound on the rank, and the top of the spectrum.",
        ),
    ] = None,
    contexts: Annotated[int, typer.Option(min=3, help="Contexts sampled for the pairwise KLD.")] = 5000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the contexts and the projection.")] = 0,
    output: Annotated[Path, typer.Option("--out", help="Folder for analysis.json and the figure.")] = Path("analysis"),
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Rank and spectrum of a model's log-probabilities, and how much they differ from context to context.

    Repeats the paper's section 3.3 and appendix C.1 in float64, without ever holding the matrix: rows are reduced by QR
    as they come. The exact route needs memory for about five V x V matrices (4 GB for Penn Treebank), which is checked
    beforehand. docs/analysis.md tells what each number means.
    """
    where = find_device(device)
    if split not in ("valid", "test"):
        raise UserError(f'there is no split "{split}" to analyse: choose valid or test.')
    corpus = _one_corpus(runs, data_dir)
    count = _token_count(tokens, len(corpus.splits[split]), split, where)
    _check_all(corpus.vocab_size, count, projection, contexts, where)
    output.mkdir(parents=True, exist_ok=True)  # now, rather than after the work
    ids = corpus.splits[split][:count]
    models = []
    for run in runs:
        result = _analyze_run(run, ids, projection, contexts, seed, where)
        models.append(_describe(run, result) | result.to_json())
    record = {
        "kind": "analysis",
        "split": split,
        "tokens": count,
        "vocabulary": corpus.vocab_size,
        "corpus": Path(corpus.name).name,
        "corpus_fingerprint": corpus.fingerprint,
        "seed": seed,
        "models": models,
        "provenance": _provenance(where),
    }
    files = write_record(output, record, f"Log-probabilities after {count:,} tokens of {record['corpus']}, {split}")
    if as_json:
        print_json(record)
        return
    out.print(_table(record))
    out.print(_notes(record))
    out.print(f"Written to {', '.join(map(str, files))}", soft_wrap=True)


def _one_corpus(runs: list[Path], data_dir: Path | None) -> "Corpus":
    from highrank.training.run import run_corpus

    first, *others = [run_corpus(run, data_dir) for run in runs]
    for run, other in zip(runs[1:], others, strict=True):
        if other.fingerprint != first.fingerprint:
            raise UserError(f"{runs[0]} and {run} were trained on different text: analyse them one at a time.")
    return first


def _token_count(tokens: str | None, available: int, split: str, device: "torch.device") -> int:
    if tokens == "all" or (tokens is None and device.type == "cuda"):
        return available
    if tokens is None:
        return min(CPU_TOKENS, available)
    if not tokens.isascii() or not tokens.isdigit() or int(tokens) < 2:
        raise UserError(f'--tokens must be a number of at least 2, or all, got "{tokens}".')
    if int(tokens) > available:
        raise UserError(
            f"{split} has {available:,} tokens, fewer than the {int(tokens):,} asked for: use --tokens all."
        )
    return int(tokens)


def _check_all(vocabulary: int, tokens: int, projection: int | None, contexts: int, device: "torch.device") -> None:
    from highrank.analysis.analyze import WINDOW, context_count
    from highrank.analysis.memory import check_memory

    if projection is not None and projection >= vocabulary:
        raise UserError(
            f"--projection must be below the vocabulary's {vocabulary:,} words, got {projection:,}: drop it."
        )
    check_memory(tokens, vocabulary, projection, context_count(tokens, vocabulary, contexts), WINDOW, device)


def _analyze_run(
    run: Path, ids: "torch.Tensor", projection: int | None, contexts: int, seed: int, device: "torch.device"
) -> "Analysis":
    from highrank.analysis import analyze, carrying_state

    model = highrank.load(run, device).model.double()
    console = Console(stderr=True)
    console.print(f"{run}:", highlight=False)
    with stage_progress(console) as tell:
        return analyze(
            carrying_state(model), ids.to(device), projection=projection, contexts=contexts, seed=seed, on_progress=tell
        )


def _describe(folder: Path, result: "Analysis") -> dict[str, Any]:
    """What a run is, beside what was found in it."""
    from highrank.training.checkpoint import load_progress
    from highrank.training.run import Run

    run = Run(folder)
    recipe, summary = run.recipe(), run.summary() or {}
    head, dim = recipe.model.head, recipe.model.embed_dim
    epochs = summary.get("epochs")
    if epochs is None and (folder / "checkpoint.json").exists():  # imported, or cut off
        epochs = load_progress(folder).epoch
    full = min(result.tokens, result.vocabulary)
    return {
        "name": folder.resolve().name,
        "run": str(folder),
        "recipe": recipe.name,
        "head": head,
        "n_components": recipe.model.n_components,
        "embed_dim": dim,
        "epochs": epochs,
        "valid_ppl": summary.get("valid_ppl"),
        "test_ppl": summary.get("test_ppl"),
        "rank_bound": full if head == "mos" else min(full, dim + 2),
    }


def _provenance(device: "torch.device") -> dict[str, Any]:
    from highrank.training.provenance import provenance

    return provenance(device)


def write_record(folder: Path, record: dict[str, Any], title: str) -> list[Path]:
    """analysis.json, spectrum.png and spectrum.svg."""
    from highrank.analysis.figure import Curve, draw
    from highrank.files import write_json

    write_json(folder / "analysis.json", record)
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


def _table(record: dict[str, Any]) -> Table:
    table = Table(title=f"{record['corpus']}, {record['split']}: {record['tokens']:,} x {record['vocabulary']:,}")
    for name in (
        "model",
        "head",
        "K",
        "D",
        "epochs",
        "perplexity",
        "rank",
        "at most",
        "effective rank",
        "pairwise KLD",
        "seconds",
    ):
        table.add_column(name, justify="left" if name in ("model", "head") else "right")
    for model in record["models"]:
        kld, effective = model["kld"], model["effective_rank"]
        table.add_row(
            model["name"],
            model["head"],
            str(model["n_components"]) if model["head"] != "softmax" else "-",
            str(model["embed_dim"]),
            "-" if model["epochs"] is None else str(model["epochs"]),
            f"{model['perplexity']:.2f}",
            f"{'>= ' if model['projected'] else ''}{model['rank']:,}",
            f"{model['rank_bound']:,}",
            "-" if effective is None else f"{effective:,.1f}",
            "-" if kld is None else f"{kld['mean']:.3f} ± {kld['standard_error']:.3f}",
            f"{sum(model['seconds'].values()):.0f}",
        )
    return table


def _notes(record: dict[str, Any]) -> str:
    """What the table's numbers stand for."""
    models, full = record["models"], min(record["tokens"], record["vocabulary"])
    lines = [
        f"Rank: singular values above round-off (Press et al.); no matrix of this shape exceeds {full:,}, "
        "a Softmax or MoC not D + 2. Perplexity: of these tokens.",
    ]
    if record["tokens"] < record["vocabulary"]:
        lines.append(
            f"With fewer tokens than words ({record['vocabulary']:,}) it is the tokens that limit the rank: "
            "take more to see its full height."
        )
    if models[0]["projected"]:
        lines.append(
            f"Through a random projection onto {models[0]['projected']:,} columns: ranks are lower bounds, and only "
            "the top of the spectrum is seen (docs/analysis.md)."
        )
    if models[0]["kld"]:
        lines.append(
            f"KLD: mean of KL(P(.|c) || P(.|c')) over all pairs of {models[0]['kld']['contexts']:,} contexts, in nats, "
            "with its standard error."
        )
    return "\n".join(lines)

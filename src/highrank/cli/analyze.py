"""`highrank analyze`: rank, spectrum and pairwise KLD of trained runs, or of any causal language model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from highrank.cli.console import out, print_json, print_written, progress
from highrank.cli.options import AsJson, DataDir, Device, find_device
from highrank.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from highrank.analysis.record import Analysis, AnalysisRecord

CPU_TOKENS = 20_000


def analyze(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Run folders, of one corpus; all in one figure.")
    ] = None,
    split: Annotated[Literal["valid", "test"], typer.Option(help="Split of the runs' corpus.")] = "test",
    tokens: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help=f"Read at most this many tokens from the start of the text. Default: {CPU_TOKENS:,} on a CPU (all of "
            "Penn Treebank takes tens of minutes there), all on a GPU. The rank cannot exceed N.",
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
    contexts: Annotated[
        int, typer.Option(min=3, help="Contexts sampled for the pairwise KLD; at most 2 GiB of them.")
    ] = 5000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the contexts and the projection.")] = 0,
    hf: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Instead of runs: a causal language model of transformers, a folder or a name on the hub.",
        ),
    ] = None,
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="With --hf: the UTF-8 text to read.")] = None,
    precision: Annotated[
        Literal["float64", "float32"],
        typer.Option(help="With --hf: float32 halves the memory of all but the output layer."),
    ] = "float64",
    output: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for analysis.json and the figure.")
    ] = Path("analysis"),
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure rank and spectrum of a model's log-probabilities, and how much they differ from context to context.

    Repeats the paper's section 3.3 and appendix C.1 in float64, without storing the matrix: rows are reduced by QR as
    they come. The exact computation needs memory for about five V x V matrices (4.7 GB for Penn Treebank), which is
    checked first. docs/analysis.md explains each number.
    """
    from highrank.analysis.matrix import Options
    from highrank.files import output_folder
    from highrank.plotting import save_figure
    from highrank.report.figures.spectrum import draw_spectra
    from highrank.runs.analysis import analyze_hf_model, analyze_runs, write_analysis
    from highrank.schema import to_json

    if bool(runs) == bool(hf) or bool(hf) != bool(text):
        raise UserError("give either run folders, or a model with --hf and the text it reads with --text.")
    where = find_device(device)
    if tokens is None and where.type == "cpu":
        tokens = CPU_TOKENS
    options = Options(projection=projection, contexts=contexts, seed=seed)
    output_folder(output)
    with progress() as on_stage:
        if hf and text:
            record = analyze_hf_model(
                hf, text, precision=precision, tokens=tokens, device=where, on_stage=on_stage, **options
            )
        else:
            record = analyze_runs(
                runs or [], split, tokens=tokens, data_dir=data_dir, device=where, on_stage=on_stage, **options
            )
    write_analysis(output / "analysis.json", record)
    figures = save_figure(draw_spectra(record), [output / "spectrum.png", output / "spectrum.svg"], dpi=150)
    if as_json:
        print_json(to_json(record))
    else:
        out.print(_table(record))
        out.print("\n".join(_notes(record)), markup=False)
    print_written(output / "analysis.json", *figures, as_json=as_json)


def _table(record: "AnalysisRecord") -> "Table":
    """Return the main table, one row per model."""
    from rich.table import Table

    source = f"{record.corpus}, {record.split}" if record.split else record.corpus
    table = Table(title=f"{source}: {record.tokens:,} x {record.vocabulary:,}")
    for name in ("model", "head", "D", "ppl", "rank", "at most", "effective", "KLD"):
        table.add_column(name, justify="left" if name in ("model", "head") else "right", overflow="fold")
    for model in record.models:
        table.add_row(
            model.name,
            f"{model.head} K={model.n_components}" if model.head in ("moc", "mos") else model.head,
            str(model.embed_dim),
            f"{model.perplexity:.2f}",
            f"{'>= ' if model.projected else ''}{model.rank:,}",
            f"{model.rank_bound:,}",
            "-" if model.effective_rank is None else f"{model.effective_rank:,.1f}",
            "-" if model.kld is None else f"{model.kld.mean:.3f} ± {model.kld.standard_error:.3f}",
        )
    return table


def _notes(record: "AnalysisRecord") -> list[str]:
    """Explain the columns, and the limits of the numbers."""
    first = record.models[0]
    notes = [] if record.split else [_describe_model(record, first), ""]
    notes.append(
        "rank: singular values above round-off, at most D + 2 for a Softmax or MoC. effective: the number of equal "
        "singular values with the same entropy. ppl: perplexity of these tokens. KLD: mean KL divergence between the "
        "predictions in two contexts, in nats. docs/analysis.md explains them."
    )
    if record.tokens < record.vocabulary and any(model.rank_bound == record.tokens for model in record.models):
        notes.append(f"The {record.tokens:,} tokens limit the rank: read more to see its full value.")
    if first.projected:
        notes.append(f"Random projection onto {first.projected:,} columns: ranks are lower bounds.")
    return notes


def _describe_model(record: "AnalysisRecord", model: "Analysis") -> str:
    """Summarise the analysis of a model of transformers in plain English."""
    output = model.output_matrix
    varying = model.varying
    if output is None or varying is None:
        return (
            f"{model.name} does not end in a plain softmax of a matrix product (its logits are capped, scaled or "
            "mixed), so the bound D + 2 need not hold."
        )
    return (
        f"{model.name} ends in a softmax over a {record.vocabulary:,} x {model.embed_dim:,} matrix, so the rank of its "
        f"log-probabilities on these tokens is at most {model.rank_bound:,}; it is {model.rank:,}. The matrix has rank "
        f"{output.rank:,} and effective rank {output.effective_rank:,.1f}. Of the variance of the log-probabilities "
        f"from context to context (effective rank {varying.effective_rank:,.1f}), {varying.directions_90:,} directions "
        f"hold 90 % and {varying.directions_99:,} hold 99 % ({varying.directions_99 / model.embed_dim:.0%} of D). This "
        "describes the model's predictions on this text, not whether a higher rank would improve them."
    )

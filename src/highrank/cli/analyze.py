"""`highrank analyze`: rank, spectrum and pairwise KLD of trained runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import highrank
from highrank.cli.console import out, print_json, print_table, print_written, progress
from highrank.cli.options import AsJson, DataDir, Device

if TYPE_CHECKING:
    from rich.table import Table

    from highrank.analysis.record import AnalysisRecord


def analyze(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, of one corpus; all in one figure.")],
    split: Annotated[Literal["valid", "test"], typer.Option(help="Split of the runs' corpus.")] = "test",
    tokens: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Read at most this many tokens from the start of the text. Default: 20,000 on a CPU (all of Penn "
            "Treebank takes tens of minutes there), all on a GPU; fewer if there are more than 46,340 words. The rank "
            "cannot exceed N.",
        ),
    ] = None,
    contexts: Annotated[
        int, typer.Option(min=3, help="Contexts sampled for the pairwise KLD; at most 2 GiB of them.")
    ] = 5000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the contexts.")] = 0,
    output: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for analysis.json and the figure.")
    ] = Path("analysis"),
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure rank and spectrum of a model's log-probabilities, and how much they differ from context to context.

    Repeats the paper's section 3.3 and appendix C.1 in float64, without storing the matrix: rows are reduced by QR as
    they come. A long text needs memory for about five V x V matrices (4.7 GB for Penn Treebank), which is
    checked first. docs/analysis.md explains each number; 'highrank doctor' looks at other models.
    """
    from highrank.files import output_folder
    from highrank.plotting import save_figure
    from highrank.runs.analysis import write_analysis
    from highrank.schema import to_json

    output_folder(output)
    with progress() as on_stage:
        record = highrank.analyze(
            runs, split, tokens=tokens, contexts=contexts, seed=seed, data_dir=data_dir, device=device,
            on_stage=on_stage,
        )  # fmt: skip
    write_analysis(output / "analysis.json", record)
    figures = save_figure(highrank.plot_spectrum(record), [output / "spectrum.png", output / "spectrum.svg"], dpi=150)
    if as_json:
        print_json(to_json(record))
    else:
        print_table(_table(record))
        out.print("\n".join(_notes(record)))
    print_written(output / "analysis.json", *figures, as_json=as_json)


def _table(record: "AnalysisRecord") -> "Table":
    """Return the main table, one row per model."""
    from rich.table import Table

    table = Table(title=f"{record.corpus}, {record.split}: {record.tokens:,} x {record.vocabulary:,}")
    for name in ("model", "head", "D", "ppl", "rank", "at most", "effective", "KLD"):
        table.add_column(name, justify="left" if name in ("model", "head") else "right")
    for model in record.models:
        table.add_row(
            model.name,
            f"{model.head} K={model.n_components}" if model.head in ("moc", "mos") else model.head,
            str(model.embed_dim),
            f"{model.perplexity:.2f}",
            f"{model.rank:,}",
            f"{model.rank_bound:,}",
            f"{model.effective_rank:,.1f}",
            "-" if model.kld is None else str(model.kld),
        )
    return table


def _notes(record: "AnalysisRecord") -> list[str]:
    """Explain the columns, and the limits of the numbers."""
    from highrank.analysis.matrix import default_rows

    notes = [
        "rank: singular values above round-off, at most D + 2 for a Softmax or MoC. effective: the number of equal "
        "singular values with the same entropy. ppl: perplexity of these tokens. KLD: mean KL divergence between the "
        "predictions in two contexts, in nats. docs/analysis.md explains them."
    ]
    if record.tokens < record.vocabulary and any(model.rank_bound == record.tokens for model in record.models):
        notes.append(f"The {record.tokens:,} tokens limit the rank: read more to see its full value.")
    if record.tokens == default_rows(record.vocabulary):
        notes.append(
            "By default, fewer tokens are read for a large vocabulary; --tokens N needs memory for 2 N x V numbers."
        )
    return notes

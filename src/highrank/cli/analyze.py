"""`highrank analyze`: rank, spectrum and pairwise KLD of trained runs, or of any causal language model."""

from pathlib import Path
from typing import Annotated

import typer

from highrank.cli.analyze_hf import analyze_hf
from highrank.cli.analyze_options import AnalyzeOptions, parse_tokens
from highrank.cli.analyze_runs import analyze_runs
from highrank.cli.analyze_show import notes, tables, write_files
from highrank.cli.console import out, print_json, print_written
from highrank.cli.options import AsJson, DataDir, Device, find_device
from highrank.errors import UserError

CPU_TOKENS = 20_000


def analyze(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Run folders, of one corpus; all in one figure.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="valid or test (the default), of runs.")] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help=f"How many tokens from the start of the text, or all. Default: all on a GPU, {CPU_TOKENS:,} on a CPU "
            "(all of Penn Treebank's take tens of minutes there). The rank cannot exceed this number.",
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
        str | None,
        typer.Option(
            help="With --hf: float64 (the default), or float32 for all but the output layer, in half the memory."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for analysis.json and the figure.")
    ] = Path("analysis"),
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Rank and spectrum of a model's log-probabilities, and how much they differ from context to context.

    Repeats the paper's section 3.3 and appendix C.1 in float64, without ever holding the matrix: rows are reduced by QR
    as they come. The exact route needs memory for about five V x V matrices (4.7 GB for Penn Treebank), which is
    checked beforehand. docs/analysis.md tells what each number means.
    """
    from highrank.files import output_folder

    _check(runs, hf, text, precision, split, data_dir)
    asked, where = parse_tokens(tokens), find_device(device)
    at_most = CPU_TOKENS if tokens is None and where.type == "cpu" else None
    options = AnalyzeOptions(asked, at_most, projection, contexts, seed, where)
    output_folder(output)
    if hf and text:
        record = analyze_hf(hf, text, precision or "float64", options)
    else:
        record = analyze_runs(runs or [], split or "test", data_dir, options)
    files = write_files(output, record)
    if as_json:
        print_json(record)
    else:
        for part in (*tables(record), notes(record)):
            out.print(part)
    print_written(*files, as_json=as_json)


def _check(
    runs: list[Path] | None, hf: str | None, text: Path | None, precision: str | None, split: str | None,
    data_dir: Path | None,
) -> None:  # fmt: skip
    if (hf is None) == (not runs):
        raise UserError("name either run folders or a model with --hf, for example: highrank analyze runs/ptb-mos.")
    if (hf is None) != (text is None):
        raise UserError("--hf and --text go together: a model, and the text it reads.")
    if hf is None and precision is not None:
        raise UserError("--precision belongs to --hf: runs are always analysed in float64.")
    if hf is not None and (split is not None or data_dir is not None):
        raise UserError("--split and --data-dir belong to runs: with --hf the text is the one of --text.")
    if precision not in (None, "float64", "float32"):
        raise UserError(f'there is no precision "{precision}": choose float64 or float32.')
    if split not in (None, "valid", "test"):
        raise UserError(f'there is no split "{split}" to analyse: choose valid or test.')

"""`highrank record`: write the results of a run as one JSON file for the report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from highrank.cli.console import print_written, progress, say
from highrank.cli.options import DataDir, Device, RunFolder, find_device
from highrank.cli.tuning import print_edges, print_point
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.runs.record import Adaptation, RunRecord, StageResult


def record(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option("--out", help="JSON file, or a folder for RUN.json. Default: results/runs/.")
    ] = None,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Add dynamic evaluation of valid and test.")] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Add valid and test with the continuous cache.")] = False,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Add results with settings tuned on validation, beside the published ones."),
    ] = False,
    tune_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tune on the first tokens of validation. Default: all.")
    ] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Write the results of a run as one JSON file, which 'highrank report' compares with the paper.

    A record holds the perplexities of the best weights and of every stage, settings, seed, machines, commits, times
    and the training curve. Dynamic evaluation and the cache are added on request. Each split that they finish is saved
    in the run folder at once, so the same command continues after an interruption and repeats nothing.
    """
    from highrank.files import output_folder
    from highrank.runs.evaluations import complete_record, read_earlier
    from highrank.runs.folder import Run, run_corpus
    from highrank.runs.record import write_record

    methods = [name for name, wanted in (("dynamic", dynamic), ("cache", cache)) if wanted]
    if tune and not methods:
        raise UserError("--tune needs --dynamic or --cache.")
    if tune_tokens is not None and not tune:
        raise UserError("--tune-tokens needs --tune.")
    opened = Run(run)
    opened.info()
    opened.require_run()
    output = output or Path("results") / "runs"
    if output.suffix != ".json":
        output = output_folder(output) / f"{run.resolve().name}.json"
    earlier = read_earlier(opened, output) if output.exists() else None
    torch_device = find_device(device)
    corpus = run_corpus(run, data_dir)
    with progress() as on_stage:
        result = complete_record(
            opened,
            corpus,
            torch_device,
            methods,
            tune=tune,
            tune_tokens=tune_tokens,
            earlier=earlier,
            on_stage=on_stage,
            on_point=print_point,
        )
    write_record(output, result)
    say(_format_results(result))
    for adaptation in (result.dynamic_tuned, result.cache_tuned):
        if adaptation is not None and adaptation.tuning is not None:
            print_edges(adaptation.tuning, run, data_dir)
    print_written(output)


def _format_results(record: "RunRecord") -> str:
    """Format the perplexities of every stage and method in one line."""
    parts = []
    for stage in record.stages:
        name = ("trained", "finetuned")[stage.stage] if stage.stage < 2 else f"finetuned {stage.stage} times"
        parts.append(_format_scores(name, stage))
    for key in ("dynamic", "dynamic_tuned", "cache", "cache_tuned"):
        adaptation = getattr(record, key)
        if adaptation is not None:
            parts.append(_format_scores(key.replace("_", ", "), adaptation))
    return f"{record.recipe}, {record.epochs} epoch{'s' * (record.epochs != 1)}: {'; '.join(parts)}"


def _format_scores(name: str, scores: "StageResult | Adaptation") -> str:
    from highrank.evaluation.perplexity import format_perplexity

    return f"{name}: valid {format_perplexity(scores.valid_ppl)}, test {format_perplexity(scores.test_ppl)}"

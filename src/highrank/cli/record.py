"""`highrank record`: write the results of a run as one JSON file for the report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from highrank.cli.console import print_written, progress, say
from highrank.cli.evaluate import TuneTokens, format_search, print_point
from highrank.cli.options import RECORDS, DataDir, Device, RunFolder
from highrank.device import find_device
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.runs.record import Adaptation, RunRecord, StageResult


def record(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option("--out", help=f"JSON file, or a folder for RUN.json. Default: {RECORDS}/runs/.")
    ] = None,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Add dynamic evaluation of valid and test.")] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Add valid and test with the continuous cache.")] = False,
    tune: Annotated[bool, typer.Option("--tune", help="Add results with settings tuned on validation.")] = False,
    tune_tokens: TuneTokens = None,
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Write the results of a run as one JSON file, which 'highrank report' compares with the paper.

    A record holds the perplexities of the best weights and of every stage, settings, seed, machines, commits, times
    and the training curve, and for a dialog model the BLEU of its responses. Dynamic evaluation and the cache are added
    on request. Each split that they finish is saved in the run folder at once, so the same command continues after an
    interruption and repeats nothing.
    """
    from highrank.data.dialog import DialogCorpus
    from highrank.files import output_folder
    from highrank.runs.corpora import run_data
    from highrank.runs.evaluations import complete_record, read_earlier
    from highrank.runs.folder import Run
    from highrank.runs.record import dialog_summary, write_record

    methods = [name for name, wanted in (("dynamic", dynamic), ("cache", cache)) if wanted]
    tune = tune or tune_tokens is not None
    if tune and not methods:
        raise UserError("--tune needs --dynamic or --cache.")
    opened = Run(run)
    opened.require_run()
    output = output or RECORDS / "runs"
    if output.suffix != ".json":
        output = output_folder(output) / f"{run.resolve().name}.json"
    earlier = read_earlier(opened, output) if output.exists() else None
    torch_device = find_device(device)
    corpus = run_data(run, data_dir)
    with progress() as on_stage:
        if isinstance(corpus, DialogCorpus):
            if methods:
                raise UserError(f"{run} is a dialog model: --dynamic and --cache are for language models.")
            result = dialog_summary(opened, corpus, torch_device, on_stage)
        else:
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
            say(format_search(adaptation.tuning))
    print_written(output)


def _format_results(record: "RunRecord") -> str:
    """Format the scores of every stage and method in one line."""
    from highrank.evaluation.score import format_score
    from highrank.runs.evaluations import RESULTS

    level = record.level
    results: dict[str, StageResult | Adaptation | None] = {
        f"finetuning {stage.stage}" if stage.stage else "training": stage for stage in record.stages
    }
    results |= {name.replace("_", ", "): getattr(record, name) for name in RESULTS}
    parts = [
        f"{name}: valid {format_score(result.valid_ppl, level)}, test {format_score(result.test_ppl, level)}"
        for name, result in results.items()
        if result is not None
    ]
    return f"{record.recipe}, {record.epochs} epoch{'' if record.epochs == 1 else 's'}: {'; '.join(parts)}"

"""`highrank record`: one complete record of a run, while its weights are at hand."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from highrank.cli.console import print_written, progress, say
from highrank.cli.options import DataDir, Device, RunFolder, find_device
from highrank.cli.tuning import say_edges, say_point
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.runs.folder import Run


def record(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option("--out", help="JSON file, or a folder for RUN.json. Default: results/runs/.")
    ] = None,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="With dynamic evaluation of valid and test.")] = False,
    cache: Annotated[bool, typer.Option("--cache", help="With the continuous cache on valid and test.")] = False,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="With the settings that do best on validation, beside the published ones (kept, if known)."
        ),
    ] = False,
    tune_tokens: Annotated[int | None, typer.Option(min=1, help="Tune on this much of validation only.")] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Write what a run came to as one JSON file, which 'highrank report' puts beside the paper.

    Perplexities of the best weights, of every stage, with --dynamic and --cache how they do when they adapt to what
    they read; settings, seed, machines, commits, times and the whole curve. A record that is there already keeps what
    it has and gains what is new, unless the run was trained further. It is written split by split: Ctrl-C costs only
    the one at hand, and the next call takes up what was cut off.
    """
    from highrank.files import output_folder, write_json
    from highrank.runs.folder import Run, run_corpus
    from highrank.runs.record import record as make_record

    if tune and not (dynamic or cache):
        raise UserError("--tune belongs to --dynamic or --cache: add one of them.")
    if tune_tokens is not None and not tune:
        raise UserError("--tune-tokens belongs to --tune: add it.")
    opened = Run(run)
    opened.info()
    opened.require_run()
    output = output or Path("results") / "runs"
    if output.suffix != ".json":
        output = output_folder(output) / f"{run.resolve().name}.json"
    if opened.model_file is None:
        raise UserError(f"{run} has no trained weights yet: let it finish an epoch first.")
    known = _known(opened, output) if output.exists() else None
    where = find_device(device)
    corpus = run_corpus(run, data_dir)
    with progress() as on_stage:
        made = make_record(
            opened, corpus, where, dynamic=dynamic, cache=cache, tune=tune, tune_tokens=tune_tokens,
            watch=lambda stage: partial(on_stage, stage),
            on_point=say_point, known=known, keep=partial(write_json, output),
        )  # fmt: skip
    parts = [f"{how}{_scores(part)}" for how, part in _parts(made)]
    say(f"{made['recipe']}, {made['epochs']} epoch{'s' * (made['epochs'] != 1)}: {'; '.join(parts)}")
    for how in ("dynamic_tuned", "cache_tuned"):
        if tuning := made.get(how, {}).get("tuning"):
            say_edges(tuning, run, data_dir)
    print_written(output)


def _known(run: "Run", output: Path) -> dict[str, Any]:
    """The record that is there already, if it is one to go on with."""
    from highrank.files import read_json
    from highrank.report.shape import RUN, TUNED
    from highrank.runs import checkpoint as checkpoints
    from highrank.runs.record import record_of
    from highrank.shape import wrong

    known = read_json(output, "record")
    if not record_of(run, known):
        raise UserError(f"{output} holds something other than a record of this run: choose another --out.")
    if said := wrong(known, RUN | {"dynamic_tuned?": TUNED, "cache_tuned?": TUNED}):
        raise UserError(f"{output} is a damaged record: {said}; remove it or choose another --out.")
    if known.get("updates", 0) > checkpoints.read(run.folder).state.step:  # of a copy that was trained elsewhere
        raise UserError(
            f"{output} tells of a later state of this run, after {known['epochs']} epochs: choose another --out."
        )
    return {key: value for key, value in known.items() if value is not None or f"{key}?" not in RUN}  # null: not there


def _parts(made: dict) -> list[tuple[str, dict]]:
    ended = [(_stage(s["stage"]), s) for s in made.get("stages", [])[:-1]]  # the oldest records have none
    hows = ("dynamic", "dynamic_tuned", "cache", "cache_tuned")
    adapted = [(f"{how.replace('_', ', ')}: ", made[how]) for how in hows if how in made]
    return [*ended, (_stage(made.get("stage", 0)) if ended else "", made), *adapted]


def _scores(part: dict) -> str:
    """valid 58.08, test 55.97; what was cut off in an earlier call has a part of it."""
    scores = [f"{split} {part[f'{split}_ppl']:.2f}" for split in ("valid", "test") if f"{split}_ppl" in part]
    return ", ".join(scores) or "cut off"


def _stage(number: int) -> str:
    return "not finetuned: " if number == 0 else f"finetuned {number} times: " if number > 1 else "finetuned: "

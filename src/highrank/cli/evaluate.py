"""`highrank evaluate`: the perplexity of a trained run, as it is or adapting to the text it reads."""

import dataclasses
from functools import partial
from typing import Annotated, Any, Literal

import typer

import highrank
from highrank.cli.console import print_json, progress, say
from highrank.cli.options import AsJson, DataDir, Device, RunFolder, find_device
from highrank.cli.tuning import format_settings, print_edges, print_point, print_points
from highrank.errors import UserError

CPU_TUNE_TOKENS = 5_000  # a search for settings of dynamic evaluation makes about twenty passes over its text
TINY = 1e-30  # smallest value of an option that must be positive


def evaluate(
    run: RunFolder,
    split: Annotated[Literal["valid", "test", "train"], typer.Option(help="The text to evaluate.")] = "test",
    batch_size: Annotated[
        int, typer.Option(min=1, help="Columns of the text. One carries the state through all of it.")
    ] = 1,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Let a copy of the model learn while it reads.")] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Mix in a cache of recent words.")] = False,
    tune: Annotated[
        bool, typer.Option("--tune", help="Search for better settings on validation, starting from those given.")
    ] = False,
    tune_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tune on the first tokens of validation. Default: all; 5,000 for --dynamic on a CPU."),
    ] = None,
    lr: Annotated[float | None, typer.Option(min=0.0, help="--dynamic: learning rate.")] = None,
    lamb: Annotated[
        float | None,
        typer.Option(
            "--lambda", min=TINY, help="--dynamic: decay to the trained weights. --cache: its share, below 1."
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(min=TINY, help="--dynamic: added to the gradient statistics.")
    ] = None,
    segment: Annotated[int | None, typer.Option(min=1, help="--dynamic: words between updates.")] = None,
    window: Annotated[int | None, typer.Option(min=1, help="--cache: words that it remembers.")] = None,
    theta: Annotated[float | None, typer.Option(min=0.0, help="--cache: sharpness of its attention.")] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Compute the exact perplexity of a run's best weights: every token except the first is predicted once.

    --dynamic is dynamic evaluation (Krause et al. 2017), --cache the continuous cache (Grave et al. 2016). Settings
    default to those published for the run's corpus.

    --tune prints every point that it tries. For --dynamic it changes one setting at a time by factors of 2, then of
    its square root; for --cache it scores a grid, then the neighbours of the best point.
    """
    from highrank.evaluation.perplexity import evaluate as evaluate_plain
    from highrank.evaluation.perplexity import format_perplexity
    from highrank.runs.adaptation import CacheEvaluation, DynamicEvaluation
    from highrank.runs.folder import run_corpus
    from highrank.schema import to_json

    of_dynamic = {"lr": lr, "lamb": lamb, "epsilon": epsilon, "segment": segment}
    of_cache = {"window": window, "theta": theta, "lamb": lamb}
    of_method = of_dynamic if dynamic else of_cache if cache else {}
    given: dict[str, Any] = {name: value for name, value in of_method.items() if value is not None}
    _check_options(dynamic, cache, tune, tune_tokens, batch_size, of_dynamic | of_cache, given)

    torch_device = find_device(device)
    model = highrank.load(run, torch_device).model
    corpus = run_corpus(run, data_dir)
    ids = corpus.splits[split]
    row: dict[str, Any] = {"run": str(run), "split": split, "batch_size": batch_size}
    tuned = None
    with progress() as on_stage:
        if dynamic or cache:
            method: Any = (DynamicEvaluation if dynamic else CacheEvaluation)(model, corpus, on_stage)
            settings = dataclasses.replace(method.published, **given)
            if tune:
                if tune_tokens is None and dynamic and torch_device.type == "cpu":
                    tune_tokens = CPU_TUNE_TOKENS
                tune_ids = corpus.splits["valid"][: None if tune_tokens is None else tune_tokens + 1]
                tuned = method.tune(tune_ids, settings, print_point)
                settings = tuned.best
            result = method.evaluate(ids, settings, f"evaluating {split}")
            row["dynamic" if dynamic else "cache"] = dataclasses.asdict(settings)
            name = "dynamic evaluation" if dynamic else "cache"
            details = f"{name}, {format_settings(settings)}; "
        else:
            result = evaluate_plain(model, ids, batch_size, on_progress=partial(on_stage, f"evaluating {split}"))
            details = ""
    row |= {"tokens": result.tokens, "nll": result.nll, "perplexity": result.perplexity}
    if tuned is not None:
        row["tuned"] = to_json(tuned.summary())
    if as_json:
        print_json(row)
        return
    if tuned is not None:
        print_points(tuned)
        print_edges(tuned.summary(), run, data_dir)
    say(
        f"{run}: {split} perplexity {format_perplexity(result.perplexity)} "
        f"({details}{result.nll:.4f} nats per token, {result.tokens:,} tokens predicted)"
    )


def _check_options(
    dynamic: bool,
    cache: bool,
    tune: bool,
    tune_tokens: int | None,
    batch_size: int,
    settings: dict[str, Any],
    given: dict[str, Any],
) -> None:
    """Raise a UserError for an option that would have no effect, and for a share of the cache of 1 or more."""
    if dynamic and cache:
        raise UserError("choose one of --dynamic and --cache.")
    ignored = [name for name, value in settings.items() if value is not None and name not in given]
    if tune_tokens is not None and not tune:
        ignored.append("tune-tokens")
    if tune and not (dynamic or cache):
        ignored.append("tune")
    if batch_size > 1 and (dynamic or cache):
        ignored.append("batch-size")
    if ignored:
        name = "lambda" if ignored[0] == "lamb" else ignored[0]
        raise UserError(f"--{name} has no effect here: leave it out, or see 'highrank evaluate --help'.")
    if cache and given.get("lamb", 0) >= 1:
        raise UserError("--lambda must be below 1 for a cache.")

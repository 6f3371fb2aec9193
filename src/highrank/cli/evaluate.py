"""`highrank evaluate`: the perplexity of a trained run, as it is or adapting to the text it reads."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import highrank
from highrank.cli.console import note, print_json, progress, say
from highrank.cli.options import AsJson, DataDir, Device, RunFolder
from highrank.device import find_device
from highrank.errors import UserError

if TYPE_CHECKING:
    import torch

    from highrank.evaluation.tune import Settings, Tuning
    from highrank.runs.run_evaluation import RunEvaluation

TUNE_HELP = "Tune on the first tokens of validation. Default: all; 5,000 for 'evaluate --dynamic' on a CPU."
TuneTokens = Annotated[int | None, typer.Option(min=1, help=TUNE_HELP)]
TINY = 1e-30  # smallest value of an option that must be positive


def evaluate(
    run: RunFolder,
    split: Annotated[Literal["valid", "test", "train"], typer.Option(help="The text to evaluate.")] = "test",
    batch_size: Annotated[int, typer.Option(min=1, help="Columns into which the text is cut.")] = 1,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Let a copy of the model learn while it reads.")] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Mix in a cache of recent words.")] = False,
    tune: Annotated[bool, typer.Option("--tune", help="First search for better settings on validation.")] = False,
    tune_tokens: TuneTokens = None,
    lr: Annotated[float | None, typer.Option(min=0.0, help="--dynamic: learning rate.")] = None,
    lamb: Annotated[
        float | None, typer.Option("--lambda", min=TINY, help="--dynamic: decay. --cache: its share, below 1.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(min=TINY, help="--dynamic: added to the statistics.")] = None,
    segment: Annotated[int | None, typer.Option(min=1, help="--dynamic: words between updates.")] = None,
    window: Annotated[int | None, typer.Option(min=1, help="--cache: words that it remembers.")] = None,
    theta: Annotated[float | None, typer.Option(min=0.0, help="--cache: sharpness of its attention.")] = None,
    log_probs: Annotated[
        Path | None, typer.Option(help="Also write the log-probability of every predicted token: .npy of float16.")
    ] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Compute the exact perplexity of a run's best weights: every token except the first is predicted once.

    A model of characters also gets its bits per character, which is the loss in nats divided by ln 2, and one of BPE
    pieces its bits per byte, which does not depend on the tokenizer.

    --dynamic is dynamic evaluation (Krause et al. 2017), --cache the continuous cache (Grave et al. 2016). Settings
    default to those published for the run's corpus.

    For a dialog model: the perplexity of the responses, and the BLEU of the responses that beam search finds.

    --tune changes one setting of --dynamic at a time by factors of 2, then of its square root. For --cache it scores a
    grid, then the neighbours of the best point. On a CPU, --dynamic is tuned on 5,000 tokens unless you ask for more.
    """
    from highrank.recipes import DialogRecipe
    from highrank.runs.folder import Run
    from highrank.schema import to_json

    if dynamic and cache:
        raise UserError("choose one of --dynamic and --cache.")
    values = {"lr": lr, "lamb": lamb, "epsilon": epsilon, "segment": segment, "window": window, "theta": theta}
    given = {key: value for key, value in values.items() if value is not None}
    if isinstance(Run(run).recipe(), DialogRecipe):
        if dynamic or cache or tune or tune_tokens or given or log_probs or batch_size > 1:
            raise UserError(f"{run} is a dialog model: only --split, --data-dir, --device and --json have an effect.")
        _evaluate_dialogs(run, split, data_dir, find_device(device), as_json)
        return
    with progress() as on_stage:
        result = highrank.evaluate(
            run, split, method="dynamic" if dynamic else "cache" if cache else "plain", batch_size=batch_size,
            tune=tune, tune_tokens=tune_tokens, log_probs=log_probs, data_dir=data_dir, device=device,
            on_stage=on_stage, on_point=print_point, **given,
        )  # fmt: skip
    if as_json:
        print_json(to_json(result))
    else:
        _print_result(result)


def _print_result(result: "RunEvaluation") -> None:
    from highrank.evaluation.score import format_score

    if result.tuned is not None:
        say(format_search(result.tuned))
    score = f"perplexity {format_score(result.perplexity, 'word')}"
    if result.bits_per_character is not None:
        score = f"{format_score(result.perplexity, 'char')}, {score}"
    if result.bits_per_byte is not None:
        score += f", {result.bits_per_byte:.3f} bits per byte"
    details = f"{result.nll:.4f} nats per token, {result.tokens:,} tokens predicted"
    for method, settings in (("dynamic", result.dynamic), ("cache", result.cache)):
        if settings is not None:
            details = f"{method}, {format_settings(settings)}; {details}"
    say(f"{result.run}: {result.split} {score} ({details})")


def _evaluate_dialogs(run: Path, split: str, data_dir: Path | None, device: "torch.device", as_json: bool) -> None:
    """Print the perplexity and the BLEU of a dialog model. Those of test are kept for 'highrank record'."""
    from highrank.data.dialog import DialogCorpus
    from highrank.evaluation.score import format_perplexity
    from highrank.runs.corpora import run_data
    from highrank.runs.dialog import dialog_perplexity, dialog_scores, load_dialog
    from highrank.runs.folder import Run
    from highrank.runs.record import dialog_summary
    from highrank.schema import to_json

    corpus = run_data(run, data_dir)
    assert isinstance(corpus, DialogCorpus)
    with progress() as on_stage:
        if split == "test":
            summary = dialog_summary(Run(run), corpus, device, on_stage)
            ppl = summary.test_ppl
            scores = summary.dialog
            assert scores is not None
        else:
            loaded = load_dialog(run, device)
            ppl = dialog_perplexity(loaded, corpus, split, on_stage).perplexity
            scores = dialog_scores(loaded, corpus, split, on_stage=on_stage)
    if as_json:
        print_json({"run": str(run), "split": split, "perplexity": ppl, **to_json(scores)})
        return
    say(f"{run}: {split} perplexity {format_perplexity(ppl)}, {scores.contexts:,} responses")
    for name, values in (("precision", scores.precision), ("recall", scores.recall)):
        say(f"  BLEU-1 to 4, {name:9}  {'  '.join(f'{value:.3f}' for value in values)}")
    say(f"  corpus BLEU             {scores.corpus_bleu:.4f}")
    decoding = scores.decoding
    say(
        f"The {decoding.n_best} best of beam {decoding.beam_size}, at most {decoding.max_length} words; "
        f"found in {scores.beam_seconds:.1f} s."
    )


def print_point(settings: "Settings", ppl: float) -> None:
    """Print one point of a search on standard error."""
    from highrank.evaluation.score import format_perplexity

    note(f"{format_settings(settings)}: valid {format_perplexity(ppl, 3)}")


def format_search(tuning: "Tuning") -> str:
    """Summarise a search, with a warning if it has not finished."""
    from highrank.evaluation.tune import MOST_POINTS

    text = f"{tuning.points:,} points on {tuning.tokens:,} tokens of valid; best: {format_settings(tuning.best)}"
    if tuning.points == MOST_POINTS:
        text += "\nThe search stopped at its limit. 'highrank evaluate --tune' can start again from the best settings."
    return text


def format_settings(settings: "Settings") -> str:
    """Format settings as "lr 0.002, lambda 0.075, epsilon 0.001"."""
    fixed = ("segment", "stats_batch_size")
    values = {key: value for key, value in dataclasses.asdict(settings).items() if key not in fixed}
    return ", ".join(f"{key.replace('lamb', 'lambda')} {value:g}" for key, value in values.items())

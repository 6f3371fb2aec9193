"""`highrank evaluate` and `highrank generate`: what a trained run is good for."""

import dataclasses
import itertools
import math
from functools import partial
from typing import Annotated, Any

import typer

import highrank
from highrank.cli.console import err, print_json, progress, say
from highrank.cli.options import AsJson, DataDir, Device, RunFolder, find_device
from highrank.cli.tuning import say_edges, say_point, show_points
from highrank.errors import UserError

CPU_TUNE_TOKENS = 5_000  # a search makes twenty passes or so over what it is given
SHORTEST_COLUMN = 20  # tokens: below, too many predictions of an evaluation have no context


def evaluate(
    run: RunFolder,
    split: Annotated[str, typer.Option(help="valid or test (or train).")] = "test",
    batch_size: Annotated[int, typer.Option(min=1, help="Columns; 1 carries the state through the whole stream.")] = 1,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Let a copy of the model adapt to what it reads.")] = False,
    lr: Annotated[float | None, typer.Option(min=0.0, help="Dynamic: learning rate.")] = None,
    cache: Annotated[bool, typer.Option("--cache", help="Mix in a cache of recent words (Grave et al.).")] = False,
    lamb: Annotated[
        float | None, typer.Option("--lambda", help="Dynamic: pull towards the start. Cache: its share.")
    ] = None,
    window: Annotated[int | None, typer.Option(min=1, help="Cache: how many words it remembers.")] = None,
    theta: Annotated[float | None, typer.Option(min=0.0, help="Cache: sharpness of its attention.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Dynamic: added to the gradients' size.")] = None,
    segment: Annotated[int | None, typer.Option(min=1, help="Dynamic: words between updates.")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose the settings on validation, starting from those given.")
    ] = False,
    tune_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tune on this much of validation. Default: all; 5,000 for --dynamic on a CPU."),
    ] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Exact perplexity of a run's best weights: every token but the first, predicted once.

    With --dynamic, after Krause et al. 2017, or --cache, after Grave et al. 2016; settings default to the published
    ones for the run's corpus. --tune searches from them on validation and shows every point tried: one knob at a time
    by factors of 2, then of its root, for --dynamic; a grid, and on from its best, for --cache, which reads the text
    once.
    """
    from highrank.data.corpus import cache_folder
    from highrank.evaluation.cache import cache_evaluate
    from highrank.evaluation.dynamic import cached_statistics, dynamic_evaluate
    from highrank.evaluation.perplexity import evaluate as evaluate_stream
    from highrank.evaluation.perplexity import shown
    from highrank.evaluation.tune import Tuned, tune_cache, tune_dynamic
    from highrank.recipes import cache_settings, dynamic_settings
    from highrank.runs.folder import run_corpus

    if split not in ("train", "valid", "test"):
        raise UserError(f'there is no split "{split}": choose valid, test or train.')
    for name, value in (("lr", lr), ("lambda", lamb), ("theta", theta), ("epsilon", epsilon)):
        if value is not None and not math.isfinite(value):
            raise UserError(f"--{name} must be finite, got {value}.")
    for name, value in (("lambda", lamb), ("epsilon", epsilon)):
        if value is not None and value <= 0:
            raise UserError(f"--{name} must be positive, got {value}.")
    if dynamic and cache:
        raise UserError("--dynamic and --cache are two ways to adapt: choose one.")
    of_dynamic = {"lr": lr, "epsilon": epsilon, "segment": segment}
    of_cache = {"window": window, "theta": theta}
    for flag, on, options in (("--dynamic", dynamic, of_dynamic), ("--cache", cache, of_cache)):
        stray = next((name for name, value in options.items() if value is not None), None)
        if not on and stray:
            raise UserError(f"--{stray} belongs to {flag}: {'leave it out' if dynamic or cache else 'add that'}.")
    if lamb is not None and not (dynamic or cache):
        raise UserError("--lambda belongs to --dynamic or --cache: add one of them.")
    if batch_size > 1 and (dynamic or cache):
        how = "--dynamic" if dynamic else "--cache"
        raise UserError(f"--batch-size belongs to evaluation without {how}, which reads one stream: leave it out.")
    if cache and lamb is not None and lamb >= 1:
        raise UserError(f"--lambda must be below 1 for a cache, got {lamb}.")
    if tune and not (dynamic or cache):
        raise UserError("--tune belongs to --dynamic or --cache: add one of them.")
    if tune_tokens is not None and not tune:
        raise UserError("--tune-tokens belongs to --tune: add it.")
    named = {**(of_dynamic if dynamic else of_cache), "lamb": lamb}
    given: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    where = find_device(device)
    loaded = highrank.load(run, where)
    corpus = run_corpus(run, data_dir)
    row: dict[str, Any] = {"run": str(run), "split": split, "batch_size": batch_size}
    ids = corpus.splits[split]
    if batch_size > 1 and len(ids) // batch_size < SHORTEST_COLUMN:
        raise UserError(
            f"--batch-size {batch_size} leaves columns of fewer than {SHORTEST_COLUMN} of {len(ids):,} tokens, most of "
            f"them without context: choose at most {max(1, len(ids) // SHORTEST_COLUMN)}."
        )
    with progress() as on_stage:
        tune_stage, split_stage = partial(on_stage, "tuning"), partial(on_stage, f"evaluating {split}")
        tuned: Tuned | None = None
        if tune_tokens is None and dynamic and where.type == "cpu":
            tune_tokens = CPU_TUNE_TOKENS
        tune_ids = corpus.splits["valid"][: None if tune_tokens is None else tune_tokens + 1]
        if dynamic:
            settings = dataclasses.replace(dynamic_settings(loaded.recipe.data.corpus), **given)
            statistics = cached_statistics(
                loaded.model, corpus.splits["train"], settings, cache_folder(), partial(on_stage, "gradient statistics")
            )
            if tune:
                tuned = tune_dynamic(
                    loaded.model, tune_ids, statistics, settings, say_point, partial(on_stage, "tuning")
                )
                settings = tuned.best
            result = dynamic_evaluate(loaded.model, ids, statistics, settings, split_stage)
            row |= {"batch_size": 1, "dynamic": dataclasses.asdict(settings)}
        elif cache:
            how_cached = dataclasses.replace(cache_settings(loaded.recipe.data.corpus), **given)
            if tune:
                tuned = tune_cache(loaded.model, tune_ids, how_cached, tune_stage)
                how_cached = tuned.best
            result = cache_evaluate(loaded.model, ids, how_cached, on_progress=split_stage)
            row |= {"batch_size": 1, "cache": dataclasses.asdict(how_cached)}
        else:
            result = evaluate_stream(loaded.model, ids, batch_size, on_progress=split_stage)
    row |= {"tokens": result.tokens, "nll": result.nll, "perplexity": result.perplexity}
    if tuned is not None:
        row["tuned"] = tuned.as_json()
    if as_json:
        print_json(row)
        return
    if tuned is not None:
        show_points(tuned)
        say_edges(row["tuned"], run, data_dir)
    how = f"dynamic evaluation, {_told(row['dynamic'])}; " if dynamic else ""
    how = f"with a cache, {_told(row['cache'])}; " if cache else how
    say(
        f"{run}: {split} perplexity {shown(result.perplexity)} "
        f"({how}{result.nll:.4f} nats a token, {result.tokens:,} tokens predicted)"
    )


def _told(settings: dict[str, Any]) -> str:
    """lr 0.002, lambda 0.075, ..."""
    return ", ".join(f"{'lambda' if key == 'lamb' else key} {value:g}" for key, value in settings.items())


def generate(
    run: RunFolder,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="Text to continue; <eos> starts a new line.")] = "<eos>",
    length: Annotated[int, typer.Option(min=1, help="How many tokens.")] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="Below 1 plays safe, 0 takes the likeliest word.")] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Sample among the k likeliest words only. Default: all.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample among the likeliest words of this share of probability. Default: 1.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed gives the same text.")] = 0,
    device: Device = "auto",
) -> None:
    """Continue a text with a trained model."""
    import torch

    from highrank.data.corpus import EOS
    from highrank.evaluation.generation import generate as generate_ids
    from highrank.runs.folder import Run

    if 0 < temperature < 0.01:
        raise UserError(f"--temperature must be 0 (the likeliest word) or at least 0.01, got {temperature}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError(f"--top-p must be above 0 and at most 1, got {top_p}.")
    where = find_device(device)
    loaded = highrank.load(run, where)
    level = Run(run).info().corpus_level
    index = {word: i for i, word in enumerate(loaded.words)}
    tokens = prompt.split() if level == "word" else _characters(prompt)
    unknown = [t for t in tokens if t not in index]
    if unknown and "<unk>" not in index:
        raise UserError(f'the model does not know "{unknown[0]}": use words of its vocabulary ({run}/vocabulary.json).')
    if unknown:
        err.print(f"not in the vocabulary, read as <unk>: {' '.join(unknown)}", style="dim")
    if not tokens:
        raise UserError("--prompt is empty: give at least one word, for example --prompt '<eos>'.")
    ids = torch.tensor([index.get(t, index.get("<unk>", 0)) for t in tokens], device=where)
    stream = generate_ids(
        loaded.model, ids, temperature=temperature, top_k=top_k, top_p=top_p,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    words = tokens + [loaded.words[i] for i in itertools.islice(stream, length)]
    if level == "word":
        lines = " ".join(words).split(EOS)
        print("\n".join(line.strip() for line in lines).strip("\n"))
    else:
        print("".join("\n" if w == EOS else w for w in words).strip("\n"))


def _characters(prompt: str) -> list[str]:
    """The characters of a prompt, with <eos> as the one token that it is."""
    from highrank.data.corpus import EOS

    first, *rest = prompt.split(EOS)
    return [*first, *(token for part in rest for token in (EOS, *part))]

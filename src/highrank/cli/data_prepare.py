"""`highrank data prepare`: text of any size as ids on disk."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from highrank.cli.console import print_written, progress, say
from highrank.cli.data_make import note_unknown, print_counts, train_command


def prepare(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A folder of text files, one sentence per line.")],
    output: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="New folder for the corpus.")],
    train: Annotated[str, typer.Option(metavar="PATTERN", help="Files to train on.")] = "train*",
    valid: Annotated[str, typer.Option(metavar="PATTERN", help="Files to validate on.")] = "valid*",
    test: Annotated[str, typer.Option(metavar="PATTERN", help="Files to test on.")] = "test*",
    max_vocab: Annotated[int, typer.Option(min=3, help="Size of the vocabulary at most.")] = 100_000,
    lower: Annotated[bool, typer.Option("--lower", help="Lower-case the text.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads. Default: one per core, at most 16.")] = None,
) -> None:
    """Prepare text that does not fit into memory, as ids on disk.

    The shards of One Billion Word are recognised by their names, and get its splits and lower case, unless you give
    patterns.

    After an interruption, the same command continues where it stopped.

    Examples:

      highrank data prepare shards --out prepared

      highrank data prepare shards --out prepared --valid '*-00.txt' --test '*-01.txt' --train '*-[1-9]?.txt'
    """
    from highrank.data.prepare import prepare as prepare_corpus
    from highrank.data.shards import PATTERNS, billion_word_shards, find_shards, is_billion_word

    patterns = {"train": train, "valid": valid, "test": test}
    recipe = "small-mos"
    if patterns == PATTERNS and is_billion_word(source):
        shards = billion_word_shards(source)
        lower = True
        recipe = "1b-mos"
    else:
        shards = find_shards(source, patterns)
    with progress() as on_stage:
        done = prepare_corpus(shards, output, max_vocab=max_vocab, lower=lower, workers=workers, on_stage=on_stage)
    print_counts(output.name, "word", done.vocabulary, done.tokens, done.unknown)
    note_unknown(done.tokens, done.unknown, larger="raise --max-vocab", smaller="lower --max-vocab")
    print_written(output)
    say(f"Train on it with:\n  {train_command(recipe, output)}")


def verify_prepared(folder: Path) -> None:
    """Check all checksums of a prepared corpus, and print its counts."""
    from highrank.data.prepared import check_files, read_manifest

    with progress() as on_stage:
        check_files(folder, partial(on_stage, "checksums"))
    manifest = read_manifest(folder)
    print_counts(str(folder), "word", manifest.vocabulary, manifest.tokens, manifest.unknown)
    say("All checksums are correct.")

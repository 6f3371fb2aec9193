"""`highrank data`: list, get, check and prepare corpora, and manage the cache."""

import contextlib
import dataclasses
import hashlib
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from highrank.cli import data_make, data_prepare
from highrank.cli.console import out, print_json, print_written, progress, say
from highrank.cli.options import AsJson, DataDir
from highrank.errors import UserError

app = typer.Typer(help="List, get, check, make and prepare corpora, and manage the cache.", no_args_is_help=True)
app.command(short_help="Make a corpus of your own text.")(data_make.make)
app.command()(data_prepare.prepare)


@app.command("list")
def list_(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the corpora: contents, licence, source, and your copy."""
    from highrank.data.catalog import CORPORA
    from highrank.data.folders import find_folder

    rows = []
    for info in CORPORA.values():
        folder = None
        if not info.embedded:
            with contextlib.suppress(UserError):
                folder = str(find_folder(info.name, data_dir, info.suffix))
        rows.append({**dataclasses.asdict(info), "folder": folder})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        out.print(Text(row["name"], style="bold").append(f"  {row['title']}", style="not bold"), soft_wrap=True)
        if row["tokens"]:
            counts = ", ".join(f"{split} {count:,}" for split, count in row["tokens"].items())
            say(f"  tokens     {counts}; vocabulary {row['vocabulary']:,}")
        say(f"  licence    {row['licence']}")
        command = f"'highrank data get {row['name']}', or " if row["archive"] else ""
        say(f"  get it     {command}{row['source']}")
        say(f"  your copy  {'included in Python' if row['embedded'] else row['folder'] or 'not found'}\n")


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="CORPUS", help="wikitext-2 or text8.")],
    data_dir: DataDir = None,
) -> None:
    """Download a corpus whose licence allows it, and check it.

    After an interruption, the same command continues where it stopped.
    """
    from functools import partial

    from highrank.data.catalog import corpus_info
    from highrank.data.download import download_corpus
    from highrank.data.folders import corpora_folder

    info = corpus_info(name)
    folder = corpora_folder(data_dir) / name
    with progress() as on_stage:
        download_corpus(info, folder, partial(on_stage, f"download of {name}"))
    say(f"{info.title}\nLicence: {info.licence}")
    print_written(folder)


@app.command(short_help="Check your copy of a corpus, or count the tokens of any folder.")
def verify(
    name: Annotated[str, typer.Argument(metavar="CORPUS", help="A corpus of 'highrank data list', or any folder.")],
    data_dir: DataDir = None,
) -> None:
    """Check the counts and checksums of your copy of a corpus, or count the tokens of any folder."""
    from highrank.data.catalog import corpus_info
    from highrank.data.corpus import load_corpus
    from highrank.data.dialog import load_dialog_corpus
    from highrank.data.folders import find_folder, own_folder
    from highrank.data.text8 import is_published, text8_file
    from highrank.recipes.dialog import DialogDataSpec

    if folder := own_folder(name, data_dir):
        _verify_folder(folder)
        return
    info = None if own_folder(name, data_dir, ".jsonl") else corpus_info(name)
    if info is None or info.suffix == ".jsonl":
        dialogs = load_dialog_corpus(DialogDataSpec(name), data_dir)
        counts = ", ".join(f"{split} {len(part.first):,}" for split, part in dialogs.splits.items())
        say(f"{name}: {counts} utterances, vocabulary {dialogs.vocab_size:,}.")
        other = "another text than the published one"
    else:
        corpus = load_corpus(name, data_dir, info.level)  # an error if the counts are wrong
        if corpus.texts is not None:
            data_prepare.verify_prepared(find_folder(name, data_dir))
            return
        counts = ", ".join(f"{split} {len(ids):,}" for split, ids in corpus.splits.items())
        say(f"{name}: {counts} tokens, vocabulary {corpus.vocab_size:,}{' as expected' if info.tokens else ''}.")
        other = "counts correct, but line ends or spacing differ"
        if corpus.extent:
            file = text8_file(find_folder(name, data_dir))
            assert file is not None
            say(f"  {file.name}: {corpus.extent}{', checksum correct' * is_published(file.read_bytes())}")
    if info is None or info.sha256 is None:
        return
    for split, expected in info.sha256.items():
        file = find_folder(name, data_dir, info.suffix) / f"{split}{info.suffix}"
        correct = hashlib.sha256(file.read_bytes()).hexdigest() == expected
        say(f"  {file.name}: {'checksum correct' if correct else other}")


def _verify_folder(folder: Path) -> None:
    """Read a folder of text, and print what training would find there."""
    from highrank.data.corpus import read_corpus
    from highrank.data.own_text import read_description
    from highrank.data.prepared import is_prepared

    if is_prepared(folder):
        data_prepare.verify_prepared(folder)
        return
    corpus = read_corpus(folder)
    tokens = {split: len(ids) for split, ids in corpus.splits.items()}
    unknown = {split: corpus.count_unknown(split) for split in corpus.splits}
    if made := read_description(folder):
        if made.tokens != tokens:
            raise UserError(f"the text in {folder} has changed since the corpus was made: make it again.")
        unknown = made.unknown
    data_make.print_counts(str(folder), corpus.level, corpus.vocab_size, tokens, unknown)
    data_make.note_unseen(corpus)


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete the cached files. Corpora are kept.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how much is cached for later commands, or delete it.

    Everything in the cache can be computed again, in minutes.
    """
    from highrank.runs.disk_cache import cache_usage, clear_cache

    usage = cache_usage()
    if clear:
        clear_cache()
    if as_json:
        print_json([{**dataclasses.asdict(kind), "folder": str(kind.folder), "cleared": clear} for kind in usage])
        return
    say(str(usage[0].folder.parent))
    for kind in usage:
        say(f"  {kind.folder.name:9} {kind.files:5,} files {kind.bytes / 1e6:9,.1f} MB   {kind.about}")
    total = f"{sum(kind.bytes for kind in usage) / 1e6:,.1f} MB"
    say(f"Deleted {total}." if clear else f"{total} in total; 'highrank data cache --clear' deletes it.")

"""`highrank recipes` and `highrank data`: what there is to train, and on what."""

import contextlib
import dataclasses
import hashlib
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from highrank.cli.console import out, print_json, print_written, say
from highrank.cli.options import AsJson, DataDir, natural_width, plain
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.recipes.recipe import Recipe


def recipes(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """The recipes side by side, with the paper's results."""
    from highrank.recipes import RECIPES, get_recipe

    chosen = [get_recipe(name) for name in dict.fromkeys(names or RECIPES)]
    if as_json:
        print_json(
            [{**r.resolved(), "about": r.about, "paper": [dataclasses.asdict(p) for p in r.paper]} for r in chosen]
        )
        return
    by_corpus: dict[str, list[Recipe]] = {}
    for recipe in chosen:
        by_corpus.setdefault(recipe.data.corpus, []).append(recipe)
    for corpus, group in by_corpus.items():
        left = group
        while left:  # as many side by side as fit the screen: no name and no value is ever folded
            count = len(left)
            while count > 1 and natural_width(_side_by_side(left[:count])) > out.width:
                count -= 1
            table = _side_by_side(left[:count])
            table.title = f"corpus {corpus}" if left is group else f"corpus {corpus}, more recipes"
            out.print(table)
            left = left[count:]
        about = Table.grid(padding=(0, 2))
        about.add_column(no_wrap=True)
        for r in group:
            about.add_row(r.name, r.about)
        out.print(about, "")
    one = chosen[0].name if len(chosen) == 1 else "NAME"
    out.print(f"Train with 'highrank train {one}'; change a value with --set, as in --set model.n_components=5.")


def _side_by_side(group: "list[Recipe]") -> Table:
    table = Table(title_justify="left")
    for name in ("", *(r.name for r in group)):
        table.add_column(name, no_wrap=True)
    for part in ("model", "train"):
        for field in dataclasses.fields(getattr(group[0], part)):
            values = [plain(getattr(getattr(r, part), field.name)) for r in group]
            table.add_row(f"{part}.{field.name}", *values)
        table.add_section()
    for label, finetuned in (("paper, valid / test", False), ("paper, finetuned", True)):
        cells = [
            " ".join(f"{p.valid:.2f} / {p.test:.2f}" for p in r.paper if p.finetuned == finetuned) or "-" for r in group
        ]
        if any(cell != "-" for cell in cells):
            table.add_row(label, *cells)
    return table


def data_list(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """What each corpus is, its licence, and where to get it."""
    from highrank.data.catalog import CORPORA
    from highrank.data.corpus import find_folder

    def place(name: str) -> str | None:
        with contextlib.suppress(UserError):
            return str(find_folder(name, data_dir))
        return None

    rows = [
        {**dataclasses.asdict(info), "folder": None if info.embedded else place(info.name)} for info in CORPORA.values()
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        here = "carried by Python itself" if row["embedded"] else row["folder"] or "not here"
        out.print(Text(row["name"], style="bold").append(f"  {row['title']}", style="not bold"), soft_wrap=True)
        if row["tokens"]:
            counts = ", ".join(f"{split} {count:,}" for split, count in row["tokens"].items())
            say(f"  tokens     {counts}; vocabulary {row['vocabulary']:,}")
        say(f"  licence    {row['licence']}")
        say(f"  get it     {row['source']}")
        say(f"  this copy  {here}\n")


def data_verify(
    name: Annotated[str, typer.Argument(metavar="CORPUS", help="penn, wikitext-2 or pydoc.")], data_dir: DataDir = None
) -> None:
    """Check counts and checksums of the copy at hand."""
    from highrank.data.corpus import corpus_info, find_folder, load_corpus

    info = corpus_info(name)
    corpus = load_corpus(name, data_dir)
    counts = ", ".join(f"{split} {len(ids):,}" for split, ids in corpus.splits.items())
    expected = " as expected" if info.tokens else ""
    say(f"{name}: {counts} tokens, vocabulary {corpus.vocab_size:,}{expected}.")
    if info.sha256:
        folder = find_folder(name, data_dir)
        for split, digest in info.sha256.items():
            same = hashlib.sha256((folder / f"{split}.txt").read_bytes()).hexdigest() == digest
            note = (
                "checksum right"
                if same
                else "right counts, but not the usual bytes (line ends, spacing or order differ)"
            )
            say(f"  {split}.txt: {note}")


def data_prepare(
    name: Annotated[str, typer.Argument(metavar="CORPUS", help="penn, wikitext-2 or pydoc.")], data_dir: DataDir = None
) -> None:
    """Tokenise a corpus now and cache its ids, so that later commands start at once."""
    from highrank.data.corpus import cache_file, corpus_info, load_corpus

    info, corpus = corpus_info(name), load_corpus(name, data_dir)
    file = cache_file(corpus.fingerprint)
    tokens = sum(map(len, corpus.splits.values()))
    note = "ready for later commands" if file.exists() else "not cached: the cache folder cannot be written"
    if info.embedded:
        note = "made from Python's own text when needed"
    say(f"{name}: {tokens:,} tokens over {corpus.vocab_size:,} words, {note}.")
    if not info.embedded and file.exists():
        print_written(file)


def data_kept(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of it. Corpora stay.")] = False,
    as_json: AsJson = False,
) -> None:
    """What commands keep in the user's cache folder so that the next one starts sooner, and how much that is.

    All of it is made again when it is missed: tokenised text in seconds, gradient statistics in minutes.
    """
    from highrank.runs import cache as kept

    found = kept.kept()
    if clear:
        kept.clear()
    if as_json:
        print_json([{**dataclasses.asdict(one), "folder": str(one.folder), "cleared": clear} for one in found])
        return
    say(str(found[0].folder.parent))
    for one in found:
        say(f"  {one.folder.name:9} {one.files:5,} files {one.bytes / 1e6:9,.1f} MB   {one.about}")
    total = f"{sum(one.bytes for one in found) / 1e6:,.1f} MB"
    say(f"Removed: {total}." if clear else f"{total} in all; 'highrank data kept --clear' removes it.")

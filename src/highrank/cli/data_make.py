"""`highrank data make`: a corpus of your own text."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from highrank.cli.console import note, out, print_json, print_written, progress, say
from highrank.cli.options import AsJson
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.data.corpus import Corpus

HIGH_UNKNOWN_SHARE = 0.2  # of the training tokens; 5 % are usual


def make(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="UTF-8 text, one file after the other.")],
    output: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="New folder for the corpus.")],
    valid: Annotated[Path | None, typer.Option(metavar="FILE", help="Validation text.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Test text.")] = None,
    level: Annotated[Literal["word", "char", "bpe"], typer.Option(help="What a token is.")] = "word",
    lower: Annotated[bool, typer.Option("--lower", help="Lower-case the text.")] = False,
    min_count: Annotated[int, typer.Option(min=1, help="Tokens that occur less often in train become <unk>.")] = 2,
    max_vocab: Annotated[int, typer.Option(min=2, help="Size of the vocabulary at most.")] = 10_000,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use this tokenizer.json of Hugging Face, or the one in this folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a corpus of your own text: three splits, and a vocabulary of the words in train.

    Without --valid and --test, the text is cut by lines: the first 90 % train, 5 % validate, the last 5 % test.

    Examples:

      highrank data make book.txt --out my-text --lower

      highrank data make *.txt --out my-text --level bpe --max-vocab 4000

      highrank data make book.txt --out my-text --tokenizer gpt2/tokenizer.json
    """
    from highrank.data.own_text import make_corpus
    from highrank.schema import to_json

    if tokenizer is not None and (level, lower, min_count, max_vocab) != ("word", False, 2, 10_000):
        raise UserError("--tokenizer decides what a token is: leave out --level, --lower, --min-count and --max-vocab.")
    with progress() as on_stage:
        description = make_corpus(
            files, output, valid=valid, test=test, level=level, lower=lower, min_count=min_count, max_vocab=max_vocab,
            tokenizer=tokenizer, on_stage=on_stage,
        )  # fmt: skip
    if as_json:
        print_json(to_json(description))
    else:
        print_counts(output.name, description.level, description.vocabulary, description.tokens, description.unknown)
    if tokenizer is None:
        larger = "raise --max-vocab" if description.vocabulary == max_vocab else "lower --min-count"
        note_unknown(description.tokens, description.unknown, larger=larger, smaller="raise --min-count")
    print_written(output, as_json=as_json)
    if not as_json:
        say(f"Train on it with:\n  {train_command('small-mos', output)}")


def train_command(recipe: str, corpus: Path) -> str:
    """Return the command that trains a recipe on a corpus folder."""
    return f"highrank train {recipe} --set {shlex.quote(f'data.corpus={corpus}')}"


def print_counts(name: str, level: str, vocabulary: int, tokens: dict[str, int], unknown: dict[str, int]) -> None:
    """Print the tokens of each split, and how many of them are `<unk>`."""
    say(f"{name}: {level} level, vocabulary {vocabulary:,}")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("", "tokens", "unknown"):
        table.add_column(heading, justify="right" if heading else "left")
    for split, count in tokens.items():
        table.add_row(f"  {split}", f"{count:,}", f"{unknown[split] / count:.2%}")
    out.print(table)


def note_unknown(tokens: dict[str, int], unknown: dict[str, int], *, larger: str, smaller: str) -> None:
    """Warn if the vocabulary is too small for the training text, or so large that this text has no `<unk>`."""
    share = unknown["train"] / tokens["train"]
    if share > HIGH_UNKNOWN_SHARE:
        note(f"{share:.0%} of the training text became <unk>, so a model cannot learn these words: {larger}.")
    others = (unknown["valid"] + unknown["test"]) / (tokens["valid"] + tokens["test"])
    if share == 0 and others > 0:
        note(
            f"{others:.2%} of valid and test are <unk>, which does not occur in train, so a model cannot learn to "
            f"predict it: {smaller}."
        )


def note_unseen(corpus: "Corpus") -> None:
    """Print how many words of valid and test a model cannot have learned, because train does not have them."""
    tokens, words = corpus.unseen()
    if tokens:
        total = len(corpus.splits["valid"]) + len(corpus.splits["test"])
        note(
            f"{words:,} words of valid and test are not in train ({tokens / total:.1%} of their tokens); "
            "'highrank data make' would turn them into <unk>."
        )

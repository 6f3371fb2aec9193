"""Make a corpus of any text: cut it into train, valid and test, and train a tokenizer on train.

    train.txt, valid.txt, test.txt   the text, unchanged
    tokenizer.json                   how it becomes ids (`tokenizer.py`)
    corpus.json                      settings and counts

Files are read line by line, so a text may be larger than memory here; training on it may not.
"""

import bisect
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from highrank.data.catalog import SPLITS, Level
from highrank.data.tokenizer import (
    FILE_NAME,
    N_BYTE_TOKENS,
    encode_batches,
    read_tokenizer,
    token_texts,
    train_tokenizer,
    unknown_id,
)
from highrank.errors import UserError
from highrank.files import whole_folder, write_json
from highrank.progress import OnStage, no_stages
from highrank.schema import read_as, to_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DESCRIPTION = "corpus.json"
ENDS = (0.90, 0.95)  # of train and of valid, as shares of the text


@dataclass(frozen=True)
class Description:
    """The format of corpus.json."""

    level: Level
    lower: bool | None  # None, like the next two, if a tokenizer was given: it decides
    min_count: int | None
    max_vocab: int | None
    tokenizer: str | None  # the tokenizer that was given
    sources: list[str]
    vocabulary: int
    tokens: dict[str, int]  # by split, with one <eos> per line
    unknown: dict[str, int]  # tokens that are <unk>


def make_corpus(
    files: Sequence[Path],
    folder: Path,
    *,
    valid: Path | None = None,
    test: Path | None = None,
    level: Level = "word",
    lower: bool = False,
    min_count: int = 2,
    max_vocab: int = 10_000,
    tokenizer: Path | None = None,
    on_stage: OnStage = no_stages,
) -> Description:
    """Make a corpus folder of text files, and return its description.

    Without files for `valid` and `test`, the last tenth of the text becomes these two. `tokenizer`, a tokenizer.json or
    a folder with one, replaces the training of a tokenizer.
    """
    if (valid is None) != (test is None):
        raise UserError("give files for both valid and test, or for neither.")
    if level == "bpe" and max_vocab < N_BYTE_TOKENS:
        raise UserError(f"BPE starts with {N_BYTE_TOKENS} tokens: the vocabulary cannot be limited to {max_vocab}.")
    trained = None
    if tokenizer is not None:
        trained = read_tokenizer(tokenizer)
        other = read_description(tokenizer if tokenizer.is_dir() else tokenizer.parent)
        level = other.level if other else "bpe"
    with whole_folder(folder) as temporary:
        texts = {split: temporary / f"{split}.txt" for split in SPLITS}
        on_stage("splitting the text", 0, None)
        _write_splits(files, valid, test, texts)
        if trained is None:
            on_stage("training the tokenizer", 0, None)
            trained = train_tokenizer(
                read_lines([texts["train"]]), level, lower=lower, min_count=min_count, max_vocab=max_vocab
            )
        trained.save(str(temporary / FILE_NAME))
        tokens = {}
        unknown = {}
        for split, path in texts.items():
            on_stage(f"counting the tokens of {split}", 0, None)
            tokens[split], unknown[split] = _count_tokens(trained, path)
        description = Description(
            level=level,
            lower=lower if tokenizer is None else None,
            min_count=min_count if tokenizer is None else None,
            max_vocab=max_vocab if tokenizer is None else None,
            tokenizer=None if tokenizer is None else str(tokenizer),
            sources=[str(file) for file in (*files, valid, test) if file is not None],
            vocabulary=len(token_texts(trained)),
            tokens=tokens,
            unknown=unknown,
        )
        write_json(temporary / DESCRIPTION, to_json(description))
    return description


def _count_tokens(tokenizer: "Tokenizer", path: Path) -> tuple[int, int]:
    """Return the number of tokens in a text, and how many of them are unknown."""
    tokens = 0
    unknown = 0
    for ids in encode_batches(tokenizer, read_lines([path])):
        tokens += len(ids)
        unknown += int((ids == unknown_id(tokenizer)).sum())
    return tokens, unknown


def read_description(folder: Path) -> Description | None:
    """Read corpus.json of a folder; None for a folder that was not made by `make_corpus`."""
    path = folder / DESCRIPTION
    if not path.exists():
        return None
    return read_as(Description, path, "description of a corpus", "make the corpus again")


def read_lines(files: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of UTF-8 files, without line ends and byte-order marks."""
    for file in files:
        try:
            with open(file, "rb") as lines:
                for number, line in enumerate(lines, start=1):
                    try:
                        yield line.decode("utf-8").removeprefix("\ufeff").rstrip("\r\n")
                    except UnicodeDecodeError:
                        raise UserError(f"line {number:,} of {file} is not UTF-8 text: convert the file.") from None
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror or error}.") from error


def _write_splits(files: Sequence[Path], valid: Path | None, test: Path | None, texts: dict[str, Path]) -> None:
    """Write the text of each split. Raise a UserError if one of them has no words."""
    if valid is None or test is None:
        _cut(files, texts)
    else:
        for split, sources in {"train": files, "valid": [valid], "test": [test]}.items():
            with _open_output(texts[split]) as output:
                output.writelines(f"{line}\n" for line in read_lines(sources))
    for split, path in texts.items():
        if not any(line.strip() for line in read_lines([path])):
            raise UserError(
                f"nothing is left for {split}: the text needs more lines, or files of their own for valid and test."
            )


def _cut(files: Sequence[Path], texts: dict[str, Path]) -> None:
    """Write the first lines to train, the next to valid and the last to test."""
    total = sum(len(line) + 1 for line in read_lines(files))
    done = 0
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(_open_output(path)) for path in texts.values()]
        for line in read_lines(files):
            outputs[bisect.bisect_right(ENDS, done / total)].write(f"{line}\n")
            done += len(line) + 1


def _open_output(path: Path) -> TextIO:
    return open(path, "w", encoding="utf-8", newline="\n")

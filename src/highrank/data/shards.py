"""The text shards of a folder, by split.

Patterns such as train* match a shard's path within the folder, so train.txt, train-00012.txt and train/news/a.txt all
belong to train. The shards of the One Billion Word benchmark are recognised by their names.
"""

import fnmatch
import re
from pathlib import Path

from highrank.data.catalog import SPLITS
from highrank.errors import UserError

Shards = dict[str, list[Path]]  # by split, sorted by name
PATTERNS = {split: f"{split}*" for split in SPLITS}

# Shard 0 of the One Billion Word benchmark was held out and cut into 50: 0 and 10 validate, 20, 30 and 40 test.
BILLION_TRAIN = [f"news.en-{i:05}-of-00100" for i in range(1, 100)]
BILLION_HELDOUT = "heldout-{:05}-of-00050"  # "news.en." may precede it
BILLION_VALID = [BILLION_HELDOUT.format(i) for i in (0, 10)]
BILLION_TEST = [BILLION_HELDOUT.format(i) for i in (20, 30, 40)]
NUMBERED = re.compile(r"(.*-)(\d+)-of-(\d+)(.*)")
SHOWN = 5  # missing shards that an error lists


def is_billion_word(folder: Path) -> bool:
    """Return whether a folder holds a training shard of the One Billion Word benchmark, at any depth."""
    return any(path.name in BILLION_TRAIN for path in folder.rglob("news.en-*"))


def billion_word_shards(folder: Path) -> Shards:
    """Return the shards of the One Billion Word benchmark, wherever they lie in the folder."""
    paths = {path.name.removeprefix("news.en."): path for path in _files(folder)}
    wanted = {"train": BILLION_TRAIN, "valid": BILLION_VALID, "test": BILLION_TEST}
    _check_present([name for names in wanted.values() for name in names], paths, folder)
    return {split: [paths[name] for name in names] for split, names in wanted.items()}


def billion_word_extent(names: list[str]) -> str:
    """Return how much of the benchmark's training text the shards of these names hold."""
    present = len({*names} & {*BILLION_TRAIN})
    return "full" if present == len(BILLION_TRAIN) else f"{present} of {len(BILLION_TRAIN)} training shards"


def find_shards(folder: Path, patterns: dict[str, str] = PATTERNS) -> Shards:
    """Return the files of a folder that match the pattern of each split.

    If they are numbered (train-00003-of-00010), none of those that match may be missing. No file may be in two splits.
    """
    paths = {str(path.relative_to(folder)): path for path in _files(folder)}
    shards = {}
    used: set[str] = set()
    for split, pattern in patterns.items():
        names = fnmatch.filter(paths, pattern)
        if not names:
            raise UserError(f'{folder} has no file for {split}: none matches "{pattern}".')
        if shared := used.intersection(names):
            raise UserError(f"{folder / min(shared)} would be in {split} and in another split: narrow the patterns.")
        used.update(names)
        expected = set()
        for match in filter(None, map(NUMBERED.fullmatch, names)):
            before, number, total, after = match.groups()
            first = int(f"{before}{0:0{len(number)}}-of-{total}{after}" not in paths)  # numbers start at 0 or 1
            expected |= {f"{before}{i + first:0{len(number)}}-of-{total}{after}" for i in range(int(total))}
        _check_present(sorted(fnmatch.filter(expected, pattern)), paths, folder)
        shards[split] = [paths[name] for name in sorted(names)]
    return shards


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder.")
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def _check_present(names: list[str], paths: dict[str, Path], folder: Path) -> None:
    missing = [name for name in names if name not in paths]
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        shards = "a shard" if len(missing) == 1 else f"{len(missing)} shards"
        raise UserError(f"{folder} lacks {shards}: {', '.join(missing[:SHOWN])}{more}. Get the files again.")

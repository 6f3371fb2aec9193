"""A real corpus without a download: the reference topics that come with every CPython, for `help()`.

Text is lower-cased and split into words, numbers and runs of one punctuation mark; words seen fewer than three times
become `<unk>`. Of every ten topics, eight go to train, one to valid and one to test, so no topic is in two splits.
"""

import hashlib
import re
import sys
from collections import Counter

from highrank.data.catalog import UNK
from highrank.errors import UserError

MIN_COUNT = 3
TOKEN = re.compile(r"[a-z_]+|[0-9]+|([^\sa-z_0-9])\1*")
SPLIT_OF_TEN = ("train",) * 4 + ("valid",) + ("train",) * 4 + ("test",)

Lines = list[list[str]]


def pydoc_lines() -> tuple[dict[str, Lines], str]:
    """Return the tokenised lines of each split, and a fingerprint of the text, which depends on the Python version."""
    lines: dict[str, Lines] = {"train": [], "valid": [], "test": []}
    topics = _topics()
    # Sorted by size: in alphabetical order, the sizes of the splits would depend on where the few longest topics fall.
    for i, name in enumerate(sorted(topics, key=lambda name: (-len(topics[name]), name))):
        split = SPLIT_OF_TEN[i % len(SPLIT_OF_TEN)]
        tokens = ([m.group() for m in TOKEN.finditer(line)] for line in topics[name].lower().splitlines())
        lines[split] += [line for line in tokens if line]
    fingerprint = hashlib.sha256(repr((MIN_COUNT, TOKEN.pattern, lines)).encode()).hexdigest()[:16]

    counts = Counter(word for split in lines.values() for line in split for word in line)
    for split_lines in lines.values():
        for line in split_lines:
            line[:] = [word if counts[word] >= MIN_COUNT else UNK for word in line]
    return lines, fingerprint


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        version = ".".join(map(str, sys.version_info[:2]))
        raise UserError(
            f"this Python {version} was installed without pydoc_data (some Linux packages leave it out): "
            "install Python's documentation data or use another Python."
        ) from None
    return topics

"""A real corpus without a download: the reference topics that come with every CPython, for `help()`.

Text is lower-cased and split into words, numbers and runs of one punctuation mark; words seen fewer than three times
become `<unk>`. Of every eight topics, six go to train, one to valid and one to test. Topics that are a section of a
longer one ("if" of "compound") are left out, or else 40 % of the test text would also be in train.
"""

import hashlib
import re
import sys
from collections import Counter

from highrank.data.catalog import UNK
from highrank.errors import UserError

MIN_COUNT = 3
TOKEN = re.compile(r"[a-z_]+|[0-9]+|([^\sa-z_0-9])\1*")
SPLIT_OF_EIGHT = ("train",) * 3 + ("valid", "test") + ("train",) * 3  # the longest topics are for training

Lines = list[list[str]]


def pydoc_lines() -> tuple[dict[str, Lines], str]:
    """Return the tokenised lines of each split, and a fingerprint of the text, which depends on the Python version."""
    lines: dict[str, Lines] = {"train": [], "valid": [], "test": []}
    for i, topic in enumerate(_distinct_topics()):
        split = SPLIT_OF_EIGHT[i % len(SPLIT_OF_EIGHT)]
        tokens = ([m.group() for m in TOKEN.finditer(line)] for line in topic.lower().splitlines())
        lines[split] += [line for line in tokens if line]
    fingerprint = hashlib.sha256(repr((MIN_COUNT, TOKEN.pattern, lines)).encode()).hexdigest()[:16]

    counts = Counter(word for split in lines.values() for line in split for word in line)
    for split_lines in lines.values():
        for line in split_lines:
            line[:] = [word if counts[word] >= MIN_COUNT else UNK for word in line]
    return lines, fingerprint


def _distinct_topics() -> list[str]:
    """Return the texts of the topics, longest first, without those most of whose lines are in longer ones.

    In alphabetical order, the sizes of the splits would depend on where the few longest topics fall.
    """
    topics = _topics()
    seen: set[str] = set()
    distinct = []
    for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        lines = [line.strip() for line in topics[name].splitlines() if line.strip()]
        if sum(line in seen for line in lines) <= len(lines) / 2:
            distinct.append(topics[name])
            seen.update(lines)
    return distinct


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

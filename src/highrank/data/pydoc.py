"""A real corpus with no download: the reference topics that every CPython carries for `help()`.

Lower-cased, split into words, numbers and runs of one punctuation mark; words seen fewer than three times become
`<unk>`. Topics go to the splits in turn (of every ten: eight to train, one to valid, one to test), so no topic is in
two of them.
"""

import hashlib
import re
import sys
from collections import Counter

from highrank.data.corpus import EOS, Corpus, tokenize
from highrank.errors import UserError

UNK = "<unk>"
MIN_COUNT = 3
TOKEN = re.compile(r"[a-z_]+|[0-9]+|([^\sa-z_0-9])\1*")
SPLIT_OF_TEN = ("train",) * 4 + ("valid",) + ("train",) * 4 + ("test",)


def pydoc_corpus() -> Corpus:
    """The corpus of the running Python; its fingerprint tells one Python's text from another's."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        version = ".".join(map(str, sys.version_info[:2]))
        raise UserError(
            f"this Python {version} was installed without pydoc_data (some Linux packages leave it out): "
            "install Python's documentation data or use another Python."
        ) from None
    lines: dict[str, list[list[str]]] = {"train": [], "valid": [], "test": []}
    # By size, so that the splits' shares do not hang on where the few very long topics fall in the alphabet.
    for i, name in enumerate(sorted(topics, key=lambda name: (-len(topics[name]), name))):
        split = SPLIT_OF_TEN[i % len(SPLIT_OF_TEN)]
        tokens = ([m.group() for m in TOKEN.finditer(line)] for line in topics[name].lower().splitlines())
        lines[split] += [line for line in tokens if line]

    counts = Counter(word for split in lines.values() for line in split for word in line)
    texts = {
        split: [token for line in part for token in (*(w if counts[w] >= MIN_COUNT else UNK for w in line), EOS)]
        for split, part in lines.items()
    }
    words, splits = tokenize(texts)
    digest = hashlib.sha256(repr((MIN_COUNT, TOKEN.pattern, lines)).encode()).hexdigest()[:16]
    return Corpus("pydoc", "word", words, splits, digest)

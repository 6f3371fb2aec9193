"""Which library splits text into words and numbers them fastest? One thread, 8 MiB of text at a time.

    python benchmarks/split_words.py FILE --csv results/benchmarks/split_words_cpu.csv

Each one turns a block of text into lower case, splits it, and returns the number of every word within the block and the
count of every word. `tokenizers` cannot number words that it does not know yet, so it is given the vocabulary and does
not count. Libraries that are not installed are left out.
"""

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

os.environ["POLARS_MAX_THREADS"] = os.environ["RAYON_NUM_THREADS"] = "1"  # read when the libraries are imported

import numpy as np
import torch

from highrank.runs.provenance import provenance
from measure import write_csv

BLOCK_BYTES = 8 * 2**20
ROUNDS = 3


def python() -> Callable[[str], np.ndarray]:
    def number(text: str) -> np.ndarray:
        tokens = text.lower().replace("\n", " <eos> ").split()
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        ids = np.fromiter(map(numbers.__getitem__, tokens), np.int32, len(tokens))
        np.bincount(ids)
        return ids

    return number


def pyarrow() -> Callable[[str], np.ndarray]:
    import pyarrow as pa
    import pyarrow.compute as pc

    def number(text: str) -> np.ndarray:
        data = text.replace("\n", " <eos> ").encode()
        buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
        lower = pc.utf8_lower(pa.Array.from_buffers(pa.string(), 1, buffers))
        ids = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lower)).flatten().dictionary_encode().indices.to_numpy()
        np.bincount(ids)
        return ids

    return number


def polars() -> Callable[[str], np.ndarray]:
    import polars as pl

    def number(text: str) -> np.ndarray:
        text = text.replace("\n", " <eos> ")
        tokens = pl.Series("word", [text]).str.to_lowercase().str.split(" ").explode()
        tokens = tokens.filter(tokens != "")
        counts = tokens.value_counts()
        return tokens.cast(pl.Enum(counts["word"])).to_physical().to_numpy()

    return number


def tokenizers(text: str) -> Callable[[str], np.ndarray]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    words = dict.fromkeys(["<unk>", "<eos>", *text.lower().split()])
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    def number(text: str) -> np.ndarray:
        lines = [f"{line} <eos>" for line in text.splitlines()]
        return np.concatenate([np.array(x.ids, np.int32) for x in tokenizer.encode_batch_fast(lines)])

    return number


def blocks(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + BLOCK_BYTES) + 1 or len(text)
        yield text[start:end]
        start = end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--csv", type=Path, default=Path("split_words.csv"))
    arguments = parser.parse_args()
    text = arguments.file.read_text()
    libraries: dict[str, Callable[[], Callable[[str], np.ndarray]]] = {
        "python": python,
        "pyarrow": pyarrow,
        "polars": polars,
        "tokenizers": lambda: tokenizers(text),
    }
    rows: list[dict[str, Any]] = []
    for name, load in libraries.items():
        try:
            number = load()
        except ImportError:
            print(f"{name} is not installed")
            continue
        seconds = []
        for _ in range(ROUNDS):
            start = time.process_time()  # not wall time: other processes may share the machine
            tokens = sum(len(number(block)) for block in blocks(text))
            seconds.append(time.process_time() - start)
        rate = round(tokens / min(seconds))
        rows.append(
            {"library": name, "tokens": tokens, "cpu_seconds": round(min(seconds), 2), "tokens_per_second": rate}
        )
        print(rows[-1], flush=True)
    write_csv(arguments.csv, [row | provenance(torch.device("cpu")) for row in rows])


if __name__ == "__main__":
    main()

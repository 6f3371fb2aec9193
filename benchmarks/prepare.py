"""What does text of the size of One Billion Word cost? Speed, memory and disk, on generated text.

    python benchmarks/prepare.py SHARD... --folder FOLDER --csv results/benchmarks/prepare_cpu.csv

Words are drawn independently from a Zipf distribution over 150,000 words: those of the given text files, the most
frequent first, then pairs of them joined by a hyphen. Sentences are as long as in the files. Every row is a process of
its own:

    generate     write the text
    prepare      highrank data prepare
    first step   highrank train with a tiny model, stopped after one update: from the start of the process to its end
    read         one pass over the permuted training sentences in 60 columns, 35 rows at a time, without a model
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from highrank.data.prepared import read_manifest, read_prepared
from highrank.data.sentences import SentenceColumns
from highrank.runs.provenance import provenance
from measure import write_csv

N_WORDS = 150_000
SENTENCES_AT_ONCE = 40_000
HELDOUT_TOKENS = 300_000  # of validation and of test
TINY = ["model.embed_dim=16", "model.hidden_sizes=16", "train.batch_size=60", "train.bptt=35"]


def generate(shards: list[Path], folder: Path, tokens: int) -> None:
    """Write train-000NN-of-000MM.txt of 10 million tokens each, valid.txt and test.txt."""
    rng = np.random.default_rng(0)
    lines = [line.split() for shard in shards for line in shard.read_text().splitlines()]
    lengths = np.array([len(line) for line in lines])
    known = [word for word, _ in Counter(word for line in lines for word in line).most_common()]
    pairs = rng.integers(len(known), size=(N_WORDS, 2))
    compounds = (f"{known[a]}-{known[b]}" for a, b in pairs)
    words = np.array(list(dict.fromkeys([*known, *compounds]))[:N_WORDS], dtype=object)
    cumulative = np.cumsum(1 / (np.arange(len(words)) + 2.7))  # Zipf's law with Mandelbrot's offset
    folder.mkdir(parents=True)
    n_shards = max(1, tokens // 10_000_000)
    names = [f"train-{i:05}-of-{n_shards:05}.txt" for i in range(n_shards)]
    sizes = [tokens // n_shards] * n_shards
    for name, size in zip([*names, "valid.txt", "test.txt"], [*sizes, HELDOUT_TOKENS, HELDOUT_TOKENS], strict=True):
        with open(folder / name, "w") as file:
            written = 0
            while written < size:
                chosen = rng.choice(lengths, min(SENTENCES_AT_ONCE, 1 + (size - written) // 20))
                drawn = np.searchsorted(cumulative, rng.random(chosen.sum()) * cumulative[-1])
                ends = np.cumsum(chosen)
                text = words[drawn].tolist()
                for start, end in zip(ends - chosen, ends, strict=True):
                    file.write(" ".join(text[start:end]) + "\n")
                written += len(text) + len(chosen)


def read(folder: Path) -> None:
    """Read all windows of a pass."""
    columns = SentenceColumns(read_prepared(folder).texts["train"], batch_size=60, seed=1)
    for start in range(0, len(columns) - 35, 35):
        columns[start : start + 36]


def measure(*command: object) -> dict[str, Any]:
    """Run a command and return its seconds and peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"failed: {command}")
    seconds = time.perf_counter() - start
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1), "peak_mib": usage.ru_maxrss // 1024}


def disk_mb(folder: Path) -> int:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6)


def measure_all(folder: Path, text: Path, prepared: Path, csv: Path) -> None:
    """Measure all stages, write the table and delete the folder."""
    folder.mkdir(parents=True)  # an error if it exists, since it is deleted at the end
    again = [sys.executable, *sys.argv, "--stage"]
    highrank = [sys.executable, "-m", "highrank"]
    tiny = [part for setting in [f"data.corpus={prepared}", *TINY] for part in ("--set", setting)]
    first_step = ["train", "ptb-softmax", *tiny, "--out", folder / "run", "--time-budget", "0.001s"]
    commands = {
        "generate": [*again, "generate"],
        "prepare": [*highrank, "data", "prepare", text, "--out", prepared, "--lower"],
        "first step": [*highrank, *first_step],
        "read": [*again, "read"],
    }
    rows: list[dict[str, Any]] = []
    for stage, command in commands.items():
        row = {"stage": stage, "tokens": None, "tokens_per_second": None, "disk_mb": None, **measure(*command)}
        row["load"] = round(os.getloadavg()[0], 1)  # processes that want to run on the machine, these included
        row["cores"] = os.cpu_count()
        rows.append(row)
        print(row, flush=True)
    counts = read_manifest(prepared).tokens
    tokens = {"prepare": sum(counts.values()), "read": counts["train"], "generate": sum(counts.values())}
    for row in rows:
        if row["stage"] in tokens:
            row["tokens"] = tokens[row["stage"]]
            row["tokens_per_second"] = round(row["tokens"] / row["seconds"])
    rows[0]["disk_mb"] = disk_mb(text)
    rows[1]["disk_mb"] = disk_mb(prepared)
    write_csv(csv, [row | provenance(torch.device("cpu")) for row in rows])
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", nargs="+", type=Path, help="text files whose words and sentence lengths are used")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder, which is deleted at the end")
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--csv", type=Path, default=Path("prepare.csv"))
    parser.add_argument("--stage", choices=["generate", "read"], help=argparse.SUPPRESS)  # what a child process does
    arguments = parser.parse_args()
    text = arguments.folder / "text"
    prepared = arguments.folder / "prepared"
    if arguments.stage == "generate":
        generate(arguments.shards, text, arguments.tokens)
    elif arguments.stage == "read":
        read(prepared)
    else:
        measure_all(arguments.folder, text, prepared, arguments.csv)


if __name__ == "__main__":
    main()

"""Turn text shards into a prepared corpus, in bounded memory and on all cores.

1. The shards are cut into blocks, and every block is split into words (`blocks.py`, the files in `parts/`).
2. The counts of the training blocks are added up; the most frequent words become the vocabulary.
3. The words of every block are translated to ids, at their place in the ids of their split (`indexed.py`).

Blocks do not depend on the number of workers, so the result does not either. A preparation that was stopped continues
with the blocks that are not in `parts/` yet.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from highrank.data.blocks import BLOCK_BYTES, ShardBlock, pyarrow
from highrank.data.catalog import EOS, SPLITS, UNK
from highrank.data.indexed import ID_BYTES, IndexedText
from highrank.data.prepared import FILES, MANIFEST, VOCABULARY, Manifest, is_prepared, sha256
from highrank.data.shards import Shards
from highrank.errors import UserError
from highrank.files import new_folder, read_json, write_json
from highrank.progress import OnProgress, OnStage, no_progress, no_stages
from highrank.schema import to_json

SPECIAL = [UNK, EOS]  # ids 0 and 1; the other words follow, the most frequent first
SAMPLE_BYTES = 2**20
MERGED_AT_ONCE = 16  # tables of words in memory
MAX_WORKERS = 16  # by default; each needs about 60 MiB

Item = TypeVar("Item")
Result = TypeVar("Result")


def prepare(
    shards: Shards,
    folder: Path,
    *,
    max_vocab: int,  # with <unk> and <eos>
    lower: bool = False,
    workers: int | None = None,  # None: one per core, at most MAX_WORKERS
    block_bytes: int = BLOCK_BYTES,
    on_stage: OnStage = no_stages,
) -> Manifest:
    """Prepare the corpus of these shards in `folder`, which is new or holds an unfinished preparation of them."""
    workers = workers or min(_available_cores(), MAX_WORKERS)
    parts = folder / "parts"
    _start(shards, folder, parts, lower, block_bytes)
    blocks = _cut(shards, parts, block_bytes)
    waiting = [block for split in SPLITS for block in blocks[split] if not block.ids_file.exists()]
    _in_parallel(lambda block: block.split(lower), waiting, workers, partial(on_stage, "splitting into words"))
    words = SPECIAL + _most_frequent(blocks["train"], max_vocab - len(SPECIAL))
    write_json(folder / VOCABULARY, words)

    texts = {}
    unknown = {}
    for split in SPLITS:
        texts[split], unknown[split] = _translate(
            blocks[split], folder / split, words, workers, partial(on_stage, f"writing {split}")
        )
    digests = _in_parallel(lambda file: sha256(folder / file), FILES, workers, partial(on_stage, "checksums"))
    manifest = Manifest(
        lower=lower,
        vocabulary=len(words),
        shards={split: [path.name for path in paths] for split, paths in shards.items()},
        tokens={split: text.tokens for split, text in texts.items()},
        sentences={split: text.sentences for split, text in texts.items()},
        unknown=unknown,
        sha256=dict(zip(FILES, digests, strict=True)),
    )
    write_json(folder / MANIFEST, to_json(manifest))
    shutil.rmtree(parts)
    return manifest


# --- before the work starts -----------------------------------------------------------------------------------------


def _start(shards: Shards, folder: Path, parts: Path, lower: bool, block_bytes: int) -> None:
    """Write the plan. Delete the parts of an earlier start, unless it had the same text, splits and settings."""
    if is_prepared(folder):
        shutil.rmtree(parts, ignore_errors=True)  # left if the process was killed while it removed them
        raise UserError(f"{folder} already holds a prepared corpus: choose another folder, or delete it.")
    versions = {
        split: [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
        for split, paths in shards.items()
    }
    plan = {"lower": lower, "block_bytes": block_bytes, "shards": versions}
    plan_file = parts / "plan.json"
    if not plan_file.exists():
        new_folder(folder)
    elif read_json(plan_file, "plan of a preparation") != plan:
        shutil.rmtree(parts)
    for file in FILES:
        (folder / file).unlink(missing_ok=True)  # of an earlier start: they are written again
    _check_disk(shards, folder, parts)
    write_json(plan_file, plan)


def _available_cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cut(shards: Shards, parts: Path, block_bytes: int) -> dict[str, list[ShardBlock]]:
    """Cut the shards of each split into blocks, and number these."""
    blocks: dict[str, list[ShardBlock]] = {split: [] for split in SPLITS}
    number = 0
    for split in SPLITS:
        for path in shards[split]:
            for start in range(0, path.stat().st_size, block_bytes):
                blocks[split].append(ShardBlock(path, start, start + block_bytes, parts / f"{number:06}"))
                number += 1
    return blocks


def _check_disk(shards: Shards, folder: Path, parts: Path) -> None:
    """Raise a UserError if the disk has too little room, judged by the first lines of the training text."""
    with open(shards["train"][0], "rb") as file:
        sample = file.read(SAMPLE_BYTES)
    lines = sample.count(b"\n")
    tokens = len(sample.split()) + lines
    # Ids twice, in parts/ and in the result; 20 bytes of index per line; lists of words, about a fourth of the text.
    per_byte = (2 * ID_BYTES * tokens + 20 * lines) / max(1, len(sample)) + 0.25
    total = sum(path.stat().st_size for paths in shards.values() for path in paths)
    existing = sum(path.stat().st_size for path in parts.glob("*"))
    needed = total * per_byte - existing
    place = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UserError(
            f"{folder} needs about {needed / 1e9:,.2f} GB while it is prepared, and its disk has {free / 1e9:,.2f} GB "
            "free: free some space, or choose another disk."
        )


# --- vocabulary and ids ---------------------------------------------------------------------------------------------


def _most_frequent(blocks: list[ShardBlock], count: int) -> list[str]:
    """Return the most frequent words; equally frequent ones are sorted by their code points."""
    pa = pyarrow()
    total = pa.table({"word": pa.array([], pa.string()), "count": pa.array([], pa.int64())})
    for i in range(0, len(blocks), MERGED_AT_ONCE):
        tables = [block.words() for block in blocks[i : i + MERGED_AT_ONCE]]
        sums = pa.concat_tables([total, *tables]).group_by("word").aggregate([("count", "sum")])
        total = pa.table({"word": sums["word"], "count": sums["count_sum"]})
    total = total.filter(pa.compute.invert(pa.compute.is_in(total["word"], pa.array(SPECIAL))))
    words: list[str] = total.sort_by([("count", "descending"), ("word", "ascending")])["word"][:count].to_pylist()
    return words


def _translate(
    blocks: list[ShardBlock], path: Path, words: list[str], workers: int, on_progress: OnProgress
) -> tuple[IndexedText, int]:
    """Write the ids of a split; return the text and the number of its tokens that are <unk>."""
    pa = pyarrow()
    vocabulary = pa.array(words)
    unk, eos = map(SPECIAL.index, (UNK, EOS))
    sizes = np.array(_in_parallel(_size, blocks, workers, no_progress)).reshape(-1, 2)
    tokens, sentences = sizes.sum(axis=0).tolist()
    if tokens == sentences:
        raise UserError(f"the shards of {path.name} have no words: get the files again.")
    text = IndexedText(path, tokens, sentences, len(words))
    text.create()

    def translate(part: tuple[ShardBlock, np.ndarray]) -> int:
        block, (token, sentence) = part
        id_of_number = pa.compute.index_in(block.words()["word"], vocabulary).fill_null(unk).to_numpy()
        ids = id_of_number[block.ids()]
        sentence_sizes = np.diff(np.flatnonzero(ids == eos) + 1, prepend=0)
        text.write(int(token), int(sentence), ids, sentence_sizes)
        return int((ids == unk).sum())

    starts = np.cumsum(sizes, axis=0) - sizes
    parts = [(block, start) for block, start, size in zip(blocks, starts, sizes, strict=True) if size[0] > 0]
    return text, sum(_in_parallel(translate, parts, workers, on_progress))


def _size(block: ShardBlock) -> tuple[int, int]:
    """Return the number of tokens and of sentences in a block."""
    pc = pyarrow().compute
    table = block.words()
    ends = table.filter(pc.equal(table["word"], EOS))
    return pc.sum(table["count"]).as_py() or 0, pc.sum(ends["count"]).as_py() or 0


def _in_parallel(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, on_progress: OnProgress
) -> list[Result]:
    """Call `function` for every item; the first error cancels the rest."""
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                on_progress(done, len(futures))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]

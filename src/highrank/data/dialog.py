"""Dialogs: JSON lines -> a vocabulary from training -> ids -> batches of contexts and responses.

A dialog folder holds train.jsonl, valid.jsonl and test.jsonl in the format of Zhao et al. (2017): every line is one
dialog, `{"utts": [[speaker, text, ...], ...]}`; what follows a text (dialog acts) is ignored. A dialog may also have
"references": for each utterance, a list of other texts that would be as good there. BLEU counts them as references.

Every utterance except the first of a dialog is a response; the utterances before it are its context. Utterances
without a word are dropped. The following is as in Zhao et al.'s code: text is lower-cased and split at white space and
punctuation (it's -> it ' s); a window of 10 utterances holds the response and up to 9 utterances of context; a longer
utterance is cut to its first 38 words (40 tokens with start and end), and <eos> still follows them.

The context is one sequence. Each of its utterances starts with <same> if the respondent speaks it, else with <other>.

Shapes: S context words, T response words with their <eos>, B examples per batch, V vocabulary.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from highrank.data.catalog import CORPORA, SPLITS, Level
from highrank.data.folders import find_folder, own_folder
from highrank.errors import UserError, nearest
from highrank.recipes.dialog import DialogDataSpec

SPECIAL_WORDS = ("<pad>", "<unk>", "<bos>", "<eos>", "<same>", "<other>")
PAD, UNK, BOS, EOS, SAME, OTHER = range(len(SPECIAL_WORDS))


class Utterance(NamedTuple):
    speaker: str
    words: list[str]
    references: tuple[list[str], ...] = ()  # other responses that would be as good


@dataclass(frozen=True)
class Dialogs:
    """The utterances of one split, one after the other; each is the id of <same>, followed by its words."""

    words: Tensor  # (tokens,) int64
    speakers: Tensor  # (tokens,) int64: who speaks the utterance that the token belongs to
    starts: Tensor  # (U + 1,) int64: the first token of each utterance, and the end of the last
    first: Tensor  # (U,) int64: the first utterance of each utterance's dialog
    references: list[list[list[int]]]  # (U): the words of other responses that would be as good


@dataclass(frozen=True)
class DialogCorpus:
    name: str
    words: list[str]  # the vocabulary, by id; the special words come first
    splits: dict[str, Dialogs]
    fingerprint: str  # of the text and how it was read
    level: Level = "word"

    @property
    def vocab_size(self) -> int:
        return len(self.words)

    @property
    def extent(self) -> str:
        """The size of the training set, in which copies of a corpus differ."""
        return f"{len(self.splits['train'].first):,} training utterances"


class Batch(NamedTuple):
    """Examples of similar lengths, padded to a common one; real words come first."""

    context: Tensor  # (S, B) ids
    context_mask: Tensor  # (S, B) bool, True at real words
    inputs: Tensor  # (T, B) ids: <bos> and the response
    targets: Tensor  # (T, B) ids: the response and <eos>
    target_mask: Tensor  # (T, B) bool, True at real words


def load_dialog_corpus(spec: DialogDataSpec, data_dir: Path | None = None) -> DialogCorpus:
    """Load the dialogs of the catalog, or any folder with the three files."""
    name = spec.corpus
    catalog = [info.name for info in CORPORA.values() if info.suffix == ".jsonl"]
    folder = find_folder(name, data_dir, ".jsonl") if name in catalog else own_folder(name, data_dir, ".jsonl")
    if folder is None:
        raise UserError(f'there is no folder with train.jsonl called "{name}"{nearest(name, catalog)}')
    return read_dialog_corpus(folder, spec.vocab_size, spec.max_words, name if name in catalog else "")


def read_dialog_corpus(folder: Path, vocab_size: int = 10_000, max_words: int = 38, name: str = "") -> DialogCorpus:
    """Read a dialog folder. The vocabulary comes from train.jsonl only and includes the special words."""
    paths = {split: folder / f"{split}.jsonl" for split in SPLITS}
    dialogs = {split: read_dialogs(path) for split, path in paths.items()}
    for split, path in paths.items():
        if all(len(dialog) < 2 for dialog in dialogs[split]):
            raise UserError(f"{path}: no dialog has two utterances, so there is no response to learn or to predict.")
    words = build_vocabulary(dialogs["train"], vocab_size)
    digest = hashlib.sha256(f"{vocab_size} {max_words}".encode())
    for path in paths.values():
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    splits = {split: encode_dialogs(dialogs[split], words, max_words) for split in SPLITS}
    return DialogCorpus(name or str(folder), words, splits, digest.hexdigest()[:16])


def read_dialogs(path: Path) -> list[list[Utterance]]:
    """Read one file of dialogs, without utterances that have no word."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except FileNotFoundError:
        raise UserError(f"{path} is missing: a dialog folder needs train.jsonl, valid.jsonl and test.jsonl.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as UTF-8 text: {error}.") from None
    return [_parse_dialog(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _parse_dialog(line: str, place: str) -> list[Utterance]:
    try:
        dialog = json.loads(line)
        references = dialog.get("references", [[]] * len(dialog["utts"]))
        if not all(isinstance(item, list) for item in [*dialog["utts"], *references]):
            raise TypeError  # unpacking would accept a string or a mapping
        utterances = [
            Utterance(str(speaker), split_words(text), tuple(map(split_words, texts)))
            for (speaker, text, *_), texts in zip(dialog["utts"], references, strict=True)
        ]
    except json.JSONDecodeError as error:
        raise UserError(f"{place}: not valid JSON ({error.msg} at column {error.colno}).") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f'{place}: not a dialog; expected {{"utts": [[speaker, text], ...]}}; "references" must hold a '
            "list of texts per utterance."
        ) from None
    return [utterance for utterance in utterances if utterance.words]


def split_words(text: str) -> list[str]:
    """Lower-case a text and split it into runs of letters or digits and runs of punctuation.

    Special words such as <eos> cannot come out of it: their brackets become words of their own.
    """
    return re.findall(r"\w+|[^\w\s]+", text.lower())


def join_words(words: Iterable[str]) -> str:
    """Return words as text, closing up apostrophes and hyphens: it ' s -> it's."""
    return re.sub(r" (['-]) ", r"\1", " ".join(words))


def build_vocabulary(dialogs: list[list[Utterance]], size: int) -> list[str]:
    """Return the special words and the most frequent words, `size` in all; ties go to the word that appears first."""
    if size <= len(SPECIAL_WORDS):
        raise UserError(f"a vocabulary of {size} words is too small: {len(SPECIAL_WORDS)} of them are special words.")
    counts = Counter(word for dialog in dialogs for utterance in dialog for word in utterance.words)
    return [*SPECIAL_WORDS, *(word for word, _ in counts.most_common(size - len(SPECIAL_WORDS)))]


def encode_dialogs(dialogs: list[list[Utterance]], words: Sequence[str], max_words: int) -> Dialogs:
    """Replace words by ids, unknown ones by <unk>, and cut every utterance to its first `max_words` words."""
    ids = {word: i for i, word in enumerate(words)}

    def encode(text: Sequence[str]) -> list[int]:
        return [ids.get(word, UNK) for word in text[:max_words]]

    names: dict[str, int] = {}
    tokens: list[int] = []
    speakers: list[int] = []
    starts = [0]
    first: list[int] = []
    references: list[list[list[int]]] = []
    for dialog in dialogs:
        first += [len(first)] * len(dialog)
        for utterance in dialog:
            tokens += [SAME, *encode(utterance.words)]
            speakers += [names.setdefault(utterance.speaker, len(names))] * (len(tokens) - starts[-1])
            starts.append(len(tokens))
            references.append([encode(text) for text in utterance.references if text])
    return Dialogs(torch.tensor(tokens), torch.tensor(speakers), torch.tensor(starts), torch.tensor(first), references)


class DialogBatches:
    """All examples of a split, in batches of few distinct shapes.

    S and T are rounded up to the given multiples, and a batch holds examples of one rounded S and T only, so a CUDA
    graph per shape is affordable. With `fill`, every batch has `batch_size` columns: a bucket's last batch is filled up
    with copies of one of its examples whose targets are masked out.
    """

    def __init__(
        self,
        dialogs: Dialogs,
        batch_size: int,
        *,
        context_size: int = 9,  # utterances
        context_multiple: int = 32,
        response_multiple: int = 8,
        fill: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        index = torch.arange(len(dialogs.first))
        responses = index[index > dialogs.first]  # (E,) utterances
        oldest = torch.maximum(dialogs.first[responses], responses - context_size)
        starts = dialogs.starts[oldest]
        middles = dialogs.starts[responses]
        ends = dialogs.starts[responses + 1]
        self.batch_size = batch_size
        self.fill = fill
        self.device = torch.device(device)
        self.n_examples = len(responses)
        self.n_tokens = int((ends - middles).sum())  # of all responses, with one <eos> each
        self.references = [dialogs.references[i] for i in responses.tolist()]  # by example, besides its own response
        self.context_lengths = _round_up((middles - starts).numpy(), context_multiple)
        self.response_lengths = _round_up((ends - middles).numpy(), response_multiple)
        self._words = dialogs.words.to(device)
        self._speakers = dialogs.speakers.to(device)
        self._starts = starts.to(device)  # the first token of each example's context,
        self._middles = middles.to(device)  # of its response,
        self._ends = ends.to(device)  # and the end of its response

    def plan(self, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """Return the examples of each batch of one pass: shuffled by `rng`, or in a fixed order without it."""
        order = np.arange(self.n_examples) if rng is None else rng.permutation(self.n_examples)
        bucket = self.response_lengths * (self.context_lengths.max() + 1) + self.context_lengths
        order = order[np.argsort(bucket[order], kind="stable")]
        borders = np.flatnonzero(np.diff(bucket[order])) + 1
        batches = [
            group[start : start + self.batch_size]
            for group in np.split(order, borders)
            for start in range(0, len(group), self.batch_size)
        ]
        return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]

    def batches(self, rng: np.random.Generator | None = None, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of one pass, from batch number `start` on."""
        for examples in self.plan(rng)[start:]:
            yield self.build(examples)

    def build(self, examples: np.ndarray) -> Batch:
        """Build the batch of these examples, which must share a bucket.

        An utterance of n words is stored as <same> w_1 ... w_n. These n + 1 positions are a response's inputs, with
        <bos> in place of <same>. Its targets are one position further on, where <eos> follows the last word.
        """
        length_s = int(self.context_lengths[examples[0]])
        length_t = int(self.response_lengths[examples[0]])
        filler = np.full(self.batch_size - len(examples) if self.fill else 0, examples[0])
        column = torch.from_numpy(np.concatenate([examples, filler])).to(self.device)
        is_real = torch.arange(len(column), device=self.device) < len(examples)  # (B,)
        start = self._starts[column]
        middle = self._middles[column]
        end = self._ends[column]

        position = start + torch.arange(length_s, device=self.device)[:, None]  # (S, B)
        context_mask = position < middle
        position = torch.minimum(position, middle)
        context = self._words[position]
        by_other = self._speakers[position] != self._speakers[middle]
        context = context.masked_fill((context == SAME) & by_other, OTHER).masked_fill(~context_mask, PAD)

        position = middle + torch.arange(length_t, device=self.device)[:, None]  # (T, B)
        target_mask = (position < end) & is_real
        inputs = self._words[torch.minimum(position, end - 1)]
        inputs[0] = BOS
        targets = self._words[torch.minimum(position + 1, end - 1)].masked_fill(position + 1 == end, EOS)
        inputs = inputs.masked_fill(~target_mask, PAD)
        return Batch(context, context_mask, inputs, targets.masked_fill(~target_mask, PAD), target_mask)


def _round_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    return -(-lengths // multiple) * multiple

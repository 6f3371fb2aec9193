"""Models that can be explored: trained runs, and Hugging Face causal language models.

Both split a text into tokens that know where they stand in it, and return the softmaxes that predict each next token.

Shapes: ids of a text (T,); n positions, K components, V vocabulary, H inputs of the head.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.data.catalog import EOS, UNK
from highrank.data.tokenizer import unknown_id
from highrank.errors import UserError
from highrank.explore.prefixes import PrefixCache
from highrank.heads import Head, MoCHead, MoSHead
from highrank.ops.lstm import State
from highrank.runs.folder import Run, display_names
from highrank.runs.text_model import load

PIECE = 8  # tokens read at once by a run: it keeps the recurrent state after each piece
MAX_PREFIXES = 20_000  # kept by a run, more than the tokens of a page: 100 MB for the paper's model on Penn Treebank


@dataclass(frozen=True)
class Token:
    start: int  # of its characters in the text
    end: int
    id: int | None  # None: not in the vocabulary, which has no <unk>, so the model does not read it
    known: bool  # False: outside the vocabulary


class Softmaxes(NamedTuple):
    """The softmaxes that predict n tokens; a plain softmax is a mixture of one."""

    log_pi: Tensor  # (n, K)
    logits: Tensor  # (n, K, V)


class ExplorableModel(Protocol):
    name: str
    words: list[str]  # how each token is written, by id
    by_word: bool  # tokens are words between spaces
    start: int  # the token read before the text
    eos: int | None  # the token that ends a line or a text
    n_components: int

    def facts(self) -> dict[str, str]:
        """Return the sizes of the model, for people."""

    def tokens(self, text: str) -> list[Token]:
        """Split a text into tokens."""

    def softmaxes(self, ids: list[int], first: int) -> Softmaxes:
        """Return the softmaxes that follow ids[: i + 1], for each i from `first` on."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""


def open_models(folders: Sequence[Path], device: torch.device) -> list[ExplorableModel]:
    """Open several folders. Models are named after them, or by their paths if the names are not unique."""
    models = [open_model(folder, device) for folder in folders]
    for model, name in zip(models, display_names(folders), strict=True):
        model.name = name
    return models


def open_model(folder: Path, device: torch.device) -> ExplorableModel:
    """Open a run folder, or a folder of a Hugging Face causal language model."""
    if not Run(folder).exists() and (folder / "config.json").exists():
        return TransformersModel(folder, device)
    return RunModel(folder, device)


class ReadPrefix(NamedTuple):
    g: Tensor  # (1, H) the input of the head
    state: list[State] | None  # only after the last token of a piece


class RunModel:
    """A trained run. It keeps what it has computed for the prefixes it has read."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.folder = folder
        self.name = folder.resolve().name
        loaded = load(folder, device)
        self.model = loaded.model
        self.words = loaded.words
        self.recipe = loaded.recipe
        self.codec = loaded.codec
        self.by_word = self.codec.level == "word"
        self.eos = self.codec.eos
        self.start = self.codec.index.get(" ", 0) if self.eos is None else self.eos  # text8 has no line ends
        self.n_components = 1 if isinstance(self.model.head, MoCHead) else self.model.head.n_components
        self._prefixes: PrefixCache[ReadPrefix] = PrefixCache(MAX_PREFIXES)

    def facts(self) -> dict[str, str]:
        """Return the sizes of the model, for people."""
        spec = self.recipe.model
        return {
            "recipe": self.recipe.name,
            "head": spec.head if spec.head == "softmax" else f"{spec.head}, {spec.n_components} components",
            "sizes": f"embedding {spec.embed_dim}, LSTM {' / '.join(map(str, spec.hidden_sizes))}",
            "parameters": f"{self.model.n_parameters():,}",
            "vocabulary": f"{len(self.words):,}",
        }

    def tokens(self, text: str) -> list[Token]:
        """Split a text as the corpus was split; the end of a line is <eos>."""
        if self.codec.tokenizer is None:
            pattern = rf"{EOS}|\n|(?:(?!{EOS})\S)+" if self.by_word else rf"{EOS}|(?s:.)"
            return [self._token(match) for match in re.finditer(pattern, text)]
        unknown = unknown_id(self.codec.tokenizer)
        tokens = []
        for line in re.finditer(r".+|\n", text):
            if line[0] == "\n":
                tokens.append(Token(line.start(), line.end(), self.eos, True))
                continue
            encoded = self.codec.tokenizer.encode(line[0], add_special_tokens=False)
            for i, (start, end) in zip(encoded.ids, encoded.offsets, strict=True):
                tokens.append(Token(line.start() + start, line.start() + end, i, i != unknown))
        return tokens

    def _token(self, match: re.Match[str]) -> Token:
        spelling = EOS if match[0] == "\n" else match[0]
        found = self.codec.find(spelling)
        if found is None and spelling == EOS:
            found = self.start
        unknown = self.codec.index.get(UNK)
        return Token(match.start(), match.end(), unknown if found is None else found, found is not None)

    def softmaxes(self, ids: list[int], first: int) -> Softmaxes:
        """Return the softmaxes that follow ids[: i + 1], for each i from `first` on."""
        return head_softmaxes(self.model.head, torch.cat([prefix.g for prefix in self._read(ids)[first:]]))

    def _read(self, ids: list[int]) -> list[ReadPrefix]:
        """Return what is known after each token; tokens are read from the last known state on."""
        known = self._prefixes.known(ids)
        if len(known) == len(ids):
            return known
        read = [*known]
        while read and read[-1].state is None:
            read.pop()
        state = read[-1].state if read else None
        for piece in torch.tensor(ids[len(read) :], device=self.model.backbone.embedding.device).split(PIECE):
            hidden = self.model.backbone(piece[:, None], state or self.model.initial_state(1))
            state = hidden.state
            read += [ReadPrefix(g, None) for g in hidden.g[:-1]] + [ReadPrefix(hidden.g[-1], state)]
        self._prefixes.extend(ids, known, read[len(known) :])
        return read

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        return self.codec.decode(ids)


class TransformersModel:
    """A Hugging Face causal language model. It keeps the attention cache of the text it has read last."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        from highrank.hf.pretrained import load_hf  # here, because it needs transformers, and runs do not

        opened = load_hf(str(folder), device, "float32")
        self.name = folder.resolve().name
        self.model = opened.model
        self.head = opened.layer if isinstance(opened.layer, MoSHead) else None  # a converted model has one
        self.tokenizer = opened.tokenizer
        if not self.tokenizer.is_fast:
            raise UserError(f"{folder} has a slow tokenizer, which does not tell where its tokens are in a text.")
        self.words = [self.tokenizer.decode([i]) for i in range(len(opened.layer.weight))]
        self.by_word = False
        self.n_components = 1 if self.head is None else self.head.n_components
        self.eos: int | None = self.tokenizer.eos_token_id
        self.start = next((i for i in (self.tokenizer.bos_token_id, self.eos) if i is not None), 0)
        self.context = opened.context
        self._ids: list[int] = []
        self._cache: Any = None
        self._outputs = torch.empty(0, device=device)  # (T, V) logits, or (T, D) hidden states for a mixture

    def facts(self) -> dict[str, str]:
        """Return the sizes of the model, for people."""
        return {
            "class": type(self.model).__name__,
            "parameters": f"{self.model.num_parameters():,}",
            "vocabulary": f"{len(self.words):,}",
        }

    def tokens(self, text: str) -> list[Token]:
        """Split a text with the model's tokenizer."""
        encoded = self.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        unknown = self.tokenizer.unk_token_id
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return [Token(start, end, i, i != unknown) for i, (start, end) in pairs]

    def softmaxes(self, ids: list[int], first: int) -> Softmaxes:
        """Return the softmaxes that follow ids[: i + 1], for each i from `first` on."""
        if len(ids) > self.context:
            raise UserError(f"the text has more tokens than the context of {self.name} ({self.context}): shorten it.")
        self._read(ids)
        outputs = self._outputs[first : len(ids)]
        if self.head is not None:
            return head_softmaxes(self.head, outputs)
        return Softmaxes(outputs.new_zeros(len(outputs), 1), outputs[:, None])

    def _read(self, ids: list[int]) -> None:
        """Compute the outputs of `ids` after the prefix that they share with the text that was read last."""
        shared = next((i for i, (a, b) in enumerate(zip(self._ids, ids, strict=False)) if a != b), len(self._ids))
        if shared >= len(ids):
            return
        cache = self._cache
        self._cache = None  # an error in the model, such as a lack of memory, would leave it half extended
        if cache is not None and shared < len(self._ids):
            cache = shortened(cache, len(self._ids) - shared)
        if cache is None:  # read everything, also for models without a cache
            shared = 0
        body = self.model if self.head is None else self.model.base_model
        options = {} if cache is None else {"past_key_values": cache}
        output = body(torch.tensor([ids[shared:]], device=self._outputs.device), use_cache=True, **options)
        new = output.logits[0] if self.head is None else output.last_hidden_state[0]
        self._outputs = torch.cat([self._outputs[:shared], new]) if shared else new
        self._cache = getattr(output, "past_key_values", None)
        self._ids = [*ids]

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        text: str = self.tokenizer.decode(ids)
        return text


def shortened(cache: Any, tokens: int) -> Any:
    """Return a cache without its last tokens, or None if it does not have the states before them any more.

    Caches of sliding windows and of linear attention do not.
    """
    try:
        cache.crop(-tokens)
    except (RuntimeError, ValueError):  # the exception depends on the version of transformers
        return None
    return cache


def added_texts(model: ExplorableModel, ids: list[int], context: str) -> list[str]:
    """Return the text that each of `ids` adds to a context, with the space before it."""
    before = [token.id for token in model.tokens(context) if token.id is not None]
    parts = []
    written = len(model.decode(before))
    for n in range(1, len(ids) + 1):
        text = model.decode([*before, *ids[:n]])
        if text.endswith("\ufffd"):  # the first bytes of a character, whose last token adds all of it
            parts.append("")
        else:
            parts.append(text[written:])
            written = len(text)
    if context[-1:].isspace() and parts:
        parts[0] = parts[0].lstrip(" ")
    return parts


def head_softmaxes(head: Head, g: Tensor) -> Softmaxes:
    """Return the softmaxes of a head for hidden states g (n, H). A MoC head has one, of its mixed context vector."""
    log_pi, h = head.softmaxes(g)
    return Softmaxes(log_pi, F.linear(h, head.weight, head.bias))

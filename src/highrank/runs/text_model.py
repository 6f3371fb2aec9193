"""A trained language model that reads and writes text: `highrank.load` and `highrank.generate`."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from highrank.analysis.prediction import predict
from highrank.data.catalog import EOS
from highrank.data.tokenizer import TextCodec
from highrank.device import find_device
from highrank.errors import UserError
from highrank.evaluation.generate import continue_by_beam
from highrank.evaluation.generate import generate as generate_ids
from highrank.evaluation.perplexity import evaluate
from highrank.files import AnyPath
from highrank.heads import MoSHead
from highrank.models import LanguageModel, build_model
from highrank.recipes import Recipe
from highrank.runs.folder import Run


class Continuation(NamedTuple):
    text: str  # with the prompt
    log_prob: float  # of the continuation, in nats


@dataclass(frozen=True, eq=False)
class TextModel:
    """The best model of a run, with the vocabulary that turns text into ids and back.

    In a text, a line break or `<eos>` ends a line. Words outside the vocabulary become `<unk>`, or raise a UserError if
    the vocabulary has no `<unk>`.
    """

    run: Run
    recipe: Recipe = field(repr=False)
    model: LanguageModel  # in evaluation mode
    words: list[str] = field(repr=False)  # the vocabulary by id

    @cached_property
    def codec(self) -> TextCodec:
        """The codec of the vocabulary, read on first use because most code needs the model only."""
        return self.run.codec()

    def encode(self, text: str) -> Tensor:
        """Return the (T,) ids of a text, on the model's device."""
        return torch.tensor(self.codec.encode(text).ids, dtype=torch.long, device=self.model.backbone.embedding.device)

    def decode(self, ids: Tensor | Iterable[int]) -> str:
        """Return the text of ids, with a line break for every `<eos>`."""
        return self.codec.decode(ids.tolist() if isinstance(ids, Tensor) else ids)

    def log_prob(self, text: str) -> Tensor:
        """Return the log-probability of every token of a text that begins a new line, (T,) float64, in nats."""
        return -evaluate(self.model, self._new_line(text)).losses

    @torch.no_grad()
    def components(self, text: str, top: int = 5) -> list[dict[str, Any]]:
        """Return what each component of a mixture predicts for every token of a text that begins a new line.

        There is one row per token and component, the largest weight first: `weight` is pi_k, `probability` is p_k of
        the token, `responsibility` the component's part of the token's probability (None for a mixture of contexts),
        and `top` the words that the component finds likeliest.
        """
        if not isinstance(self.model.head, MoSHead):  # MoCHead is a MoSHead
            raise UserError(f"{self.run.folder} has a softmax without components: load a run with a mixture.")
        ids = self._new_line(text)
        g = self.model.backbone(ids[:-1, None], self.model.initial_state(1)).g[:, 0]  # (T, H)
        rows = []
        for position, token in enumerate(ids[1:].tolist()):
            for component in predict(self.model, g[position], token, self.words, top).components:
                rows.append(
                    {
                        "position": position,
                        "token": self.words[token],
                        "component": component.index,
                        "weight": component.weight,
                        "probability": component.p_reference,
                        "responsibility": component.share,
                        "top": [candidate.word for candidate in component.top],
                    }
                )
        return rows

    def generate(
        self,
        prompt: str = EOS,
        *,
        length: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
    ) -> str:
        """Return the prompt and `length` more tokens, sampled. `torch.manual_seed` or a CPU `generator` repeats them.

        A temperature below 1 prefers likely words, and 0 takes the likeliest. `top_k` samples from the k likeliest
        words only, `top_p` from the likeliest words up to this total probability.
        """
        ids = self._prompt(prompt)
        stream = generate_ids(self.model, ids, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        return self.decode([*ids.tolist(), *itertools.islice(stream, length)]).strip("\n")

    def beam_search(self, prompt: str = EOS, *, beam_size: int = 5, length: int = 100) -> list[Continuation]:
        """Return the likeliest continuations of a prompt, best first, up to the end of the line if there are any."""
        ids = self._prompt(prompt)
        found = continue_by_beam(self.model, ids, eos=self.codec.eos, beam_size=beam_size, max_length=length)
        texts = [self.decode(ids.tolist() + words).strip("\n") for words in found.to_lists()[0]]
        return [Continuation(*pair) for pair in zip(texts, found.log_prob[:, 0].tolist(), strict=False)]

    def _prompt(self, text: str) -> Tensor:
        ids = self.encode(text)
        if not len(ids):
            raise UserError(f"the prompt is empty: give at least one word, or {EOS} for a new line.")
        return ids

    def _new_line(self, text: str) -> Tensor:
        """Return the ids of a text, preceded by the end of a line, from which the first token is predicted."""
        ids = self.encode("\n" + text)
        if len(ids) < 2:
            raise UserError("the text is empty: give at least one word.")
        return ids


def load(run: AnyPath, device: str | torch.device = "cpu") -> TextModel:
    """Load the best language model of a run. `runs.dialog` loads dialog models.

    >>> model = highrank.load("runs/ptb-mos")  # doctest: +SKIP
    >>> model.log_prob("the company said").sum()  # doctest: +SKIP
    """
    opened = Run(Path(run))
    recipe = opened.language_recipe()
    words = opened.words()
    with torch.random.fork_rng(devices=[]):  # the initial weights are replaced: draw no numbers of the caller's
        model = build_model(recipe.model, len(words))
    opened.load_weights(model)
    return TextModel(opened, recipe, model.to(find_device(device)).eval(), words)


def generate(
    run: AnyPath,
    prompt: str = EOS,
    *,
    length: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    device: str | torch.device = "auto",
) -> str:
    """Continue a text with the best model of a run; `TextModel.generate` explains the options."""
    return load(run, device).generate(
        prompt, length=length, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator
    )

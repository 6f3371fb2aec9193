"""The recipe of a dialog model: its data, model, training and decoding, as frozen dataclasses."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from highrank.recipes.recipe import HeadName, ScheduleSpec


@dataclass(frozen=True)
class DialogDataSpec:
    """A folder with train.jsonl, valid.jsonl and test.jsonl, and how to read it (`highrank.data.dialog`)."""

    corpus: str
    vocab_size: int = 10_000  # Zhao et al.; here the special words count too
    context_size: int = 9  # utterances; Zhao et al.: a window of 10 with the response
    max_words: int = 38  # per utterance; Zhao et al.: 40 with the start and end tokens


@dataclass(frozen=True)
class Seq2SeqSpec:
    """Sizes and dropouts of `highrank.models.seq2seq`."""

    head: HeadName
    embed_dim: int  # D, of the one embedding that encoder, decoder and head share
    encoder_size: int  # per direction
    decoder_size: int
    attention_size: int  # of g; a softmax head needs it equal to embed_dim
    n_components: int = 1  # K
    dropout_input: float = 0.0  # variational, on the embedded words
    dropout_output: float = 0.0  # variational, on g
    dropout_latent: float = 0.0  # variational, on the context vectors h


@dataclass(frozen=True)
class DecodingSpec:
    """How responses are generated for BLEU. The first three values are the paper's (section 3.1)."""

    beam_size: int = 10
    n_best: int = 5
    max_length: int = 30  # words
    length_penalty: float = 0.0  # as in `highrank.evaluation.beam`; the paper mentions none


@dataclass(frozen=True)
class PaperDialogResult:
    """A row of table 4: perplexity, and BLEU-1 to BLEU-4."""

    perplexity: float
    precision: tuple[float, float, float, float]
    recall: tuple[float, float, float, float]


@dataclass(frozen=True)
class DialogRecipe:
    name: str
    about: str
    data: DialogDataSpec
    model: Seq2SeqSpec
    train: ScheduleSpec
    decoding: DecodingSpec = DecodingSpec()
    paper: PaperDialogResult | None = field(default=None, compare=False)

    def specs(self) -> dict[str, Any]:
        """Return the parts of the recipe whose values can be overridden."""
        return {"data": self.data, "model": self.model, "train": self.train, "decoding": self.decoding}

    def resolved(self) -> dict[str, Any]:
        """Return everything that determines the result of a run, as a run folder stores it."""
        return {"name": self.name} | {part: dataclasses.asdict(spec) for part, spec in self.specs().items()}

"""A language model made of a backbone and a head.

Shapes: words and targets (T, B); nll (T, B); log-probabilities (T, B, V).
"""

from typing import NamedTuple

from torch import Tensor, nn

from highrank.heads import DOCHead, Head, MoCHead, MoSHead, SoftmaxHead
from highrank.models.awd_lstm import AWDLSTM, Hidden
from highrank.ops.lstm import State
from highrank.recipes import ModelSpec
from highrank.recipes.dialog import Seq2SeqSpec


class Scored(NamedTuple):
    nll: Tensor  # (T, B) float32
    hidden: Hidden


class LanguageModel(nn.Module):
    """Predicts each next word from the hidden states of `backbone`, through `head`.

    >>> backbone = AWDLSTM(vocab_size=100, embed_dim=8, hidden_sizes=(16, 12))
    >>> model = LanguageModel(backbone, MoSHead(12, 8, 100, n_components=3, weight=backbone.embedding))
    """

    def __init__(self, backbone: AWDLSTM, head: Head) -> None:
        super().__init__()
        if head.in_features != backbone.out_features:
            raise ValueError(
                f"the head's in_features ({head.in_features}) must be the backbone's out_features "
                f"({backbone.out_features}): its last hidden size, and those of `lower_outputs`"
            )
        self.backbone = backbone
        self.head = head

    def initial_state(self, batch_size: int) -> list[State]:
        """Return the zero state of every layer, for a batch of `batch_size` columns."""
        return self.backbone.initial_state(batch_size)

    def forward(self, words: Tensor, targets: Tensor, state: list[State]) -> Scored:
        """Return the loss of every target, and the hidden states that produced it."""
        hidden = self.backbone(words, state)
        return Scored(self.head.nll(hidden.g, targets), hidden)

    def log_prob(self, words: Tensor, state: list[State]) -> tuple[Tensor, list[State]]:
        """Return the log-probabilities of every next word, (T, B, V), and the new state."""
        hidden = self.backbone(words, state)
        return self.head.log_prob(hidden.g), hidden.state

    def step(self, words: Tensor, state: list[State]) -> tuple[Tensor, list[State]]:
        """Read one word per row, (N,); return log-probabilities of the next, (N, V), and the new state."""
        log_prob, state = self.log_prob(words[None], state)
        return log_prob[0], state

    def select_rows(self, state: list[State], rows: Tensor) -> list[State]:
        """Return the state whose row i is row rows[i] of `state`."""
        return [(h[rows], c[rows]) for h, c in state]

    def n_parameters(self) -> int:
        """Return the number of parameters, counting tied ones once."""
        return sum(p.numel() for p in self.parameters())


def build_model(spec: ModelSpec, vocab_size: int) -> LanguageModel:
    """Build the AWD-LSTM language model of a recipe; input and output embeddings are tied if `spec.tied`."""
    backbone = AWDLSTM(
        vocab_size,
        spec.embed_dim,
        spec.hidden_sizes,
        dropout_words=spec.dropout_words,
        dropout_input=spec.dropout_input,
        dropout_hidden=spec.dropout_hidden,
        dropout_output=spec.dropout_output,
        weight_drop=spec.weight_drop,
        lower_outputs=len(spec.lower_components),
    )
    weight = backbone.embedding if spec.tied else None
    if not spec.lower_components:
        head = build_head(spec, spec.hidden_sizes[-1], vocab_size, weight, shared_mask=spec.shared_latent_mask)
        return LanguageModel(backbone, head)
    n_layers = 1 + len(spec.lower_components)
    doc = DOCHead(
        spec.hidden_sizes[::-1][:n_layers],  # the last layer's first
        spec.embed_dim,
        vocab_size,
        (spec.n_components - sum(spec.lower_components), *spec.lower_components),
        dropout=spec.dropout_latent,
        shared_mask=spec.shared_latent_mask,
        weight=weight,
        scale=1.0,  # the released code has none
    )
    return LanguageModel(backbone, doc)


def build_head(
    spec: ModelSpec | Seq2SeqSpec,
    in_features: int,
    vocab_size: int,
    weight: nn.Parameter | None,
    *,
    shared_mask: bool = False,
) -> Head:
    """Build the head of a recipe for hidden states of size `in_features`, tied to `weight` if there is one."""
    if spec.head == "softmax":
        return SoftmaxHead(in_features, vocab_size, weight=weight)
    mixtures = {"moc": MoCHead, "mos": MoSHead}
    if spec.head not in mixtures:
        raise ValueError(f"unknown head {spec.head!r}: choose softmax, moc or mos")
    return mixtures[spec.head](
        in_features,
        spec.embed_dim,
        vocab_size,
        spec.n_components,
        dropout=spec.dropout_latent,
        shared_mask=shared_mask,
        weight=weight,
        scale=1.0,  # as in the paper
    )

"""A language model = AWD-LSTM backbone + head, with input and output embeddings tied as in the paper.

Shapes: words and targets (T, B); nll (T, B); log-probabilities (T, B, V).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor, nn

from highrank.heads import MoCHead, MoSHead, SoftmaxHead
from highrank.models.awd_lstm import AWDLSTM, Hidden
from highrank.ops.lstm import State

HeadName = Literal["softmax", "moc", "mos"]


class Scored(NamedTuple):
    nll: Tensor  # (T, B) float32
    hidden: Hidden


class LanguageModel(nn.Module):
    """Predicts each next word. `head` is "softmax", "moc" or "mos"; `n_components` is K, for the mixtures."""

    def __init__(
        self,
        vocab_size: int,
        *,
        head: HeadName,
        embed_dim: int,
        hidden_sizes: Sequence[int],
        n_components: int = 1,
        tied: bool = True,
        dropout_words: float = 0.0,
        dropout_input: float = 0.0,
        dropout_hidden: float = 0.0,
        dropout_output: float = 0.0,
        dropout_latent: float = 0.0,
        weight_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.backbone = AWDLSTM(
            vocab_size,
            embed_dim,
            hidden_sizes,
            dropout_words=dropout_words,
            dropout_input=dropout_input,
            dropout_hidden=dropout_hidden,
            dropout_output=dropout_output,
            weight_drop=weight_drop,
        )
        weight = self.backbone.embedding if tied else None
        last = self.backbone.hidden_sizes[-1]
        self.head: SoftmaxHead | MoCHead | MoSHead
        if head == "softmax":
            if tied and last != embed_dim:
                raise ValueError(
                    f"a tied softmax head needs its last hidden size ({last}) equal to embed_dim ({embed_dim}); "
                    "change one of them or set tied=False"
                )
            self.head = SoftmaxHead(last, vocab_size, weight=weight)
        elif head in ("moc", "mos"):
            mixture = MoCHead if head == "moc" else MoSHead
            self.head = mixture(last, embed_dim, vocab_size, n_components, dropout=dropout_latent, weight=weight)
        else:
            raise ValueError(f"unknown head {head!r}: choose softmax, moc or mos")

    def initial_state(self, batch_size: int) -> list[State]:
        return self.backbone.initial_state(batch_size)

    def forward(self, words: Tensor, targets: Tensor, state: list[State]) -> Scored:
        """The loss of every target, and the hidden states that produced it."""
        hidden = self.backbone(words, state)
        return Scored(self.head.nll(hidden.g, targets), hidden)

    def log_prob(self, words: Tensor, state: list[State]) -> tuple[Tensor, list[State]]:
        """Log-probabilities of every next word, (T, B, V), and the new state."""
        hidden = self.backbone(words, state)
        return self.head.log_prob(hidden.g), hidden.state

    def n_parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        return sum(p.numel() for p in self.parameters())

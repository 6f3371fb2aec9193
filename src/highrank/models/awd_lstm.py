"""The AWD-LSTM backbone (Merity et al. 2017), with one size per layer, as the paper needs (appendix B.1).

Shapes: words (T, B) ids; hidden states g (T, B, H) of the last layer; state: one (h, c) pair of (B, H_l) per layer.
The state is passed in and returned, never stored. With every dropout at zero this is a plain LSTM.

For DOC's head, g also holds the states of lower layers: (T, B, H + H' + ...), the last layer's first.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from highrank.ops.dropout import embedding_dropout, gaussian_noise, variational_dropout
from highrank.ops.lstm import State, lstm
from highrank.ops.parameters import check_dropouts, check_sizes, new_embedding


class Hidden(NamedTuple):
    g: Tensor  # (T, B, H) after the output dropout: the head's input; AR penalises the part of the last layer
    raw: Tensor  # (T, B, H) before the output dropout, of the last layer: penalised by TAR
    state: list[State]


class WeightDropLSTM(nn.Module):
    """One LSTM layer whose recurrent matrix gets a new dropout mask at every forward pass in training."""

    def __init__(self, in_features: int, hidden_size: int, weight_drop: float) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_drop = weight_drop
        bound = 1 / math.sqrt(hidden_size)  # the initialisation of nn.LSTM

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

        self.weight_ih = uniform(4 * hidden_size, in_features)
        self.weight_hh = uniform(4 * hidden_size, hidden_size)
        self.bias_ih = uniform(4 * hidden_size)
        self.bias_hh = uniform(4 * hidden_size)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return lstm(x, state, *weights, weight_drop=self.weight_drop if self.training else 0.0)


class AWDLSTM(nn.Module):
    """A word embedding and a stack of weight-dropped LSTM layers of the given sizes."""

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_sizes: Sequence[int],
        *,
        dropout_words: float = 0.0,
        dropout_input: float = 0.0,
        dropout_hidden: float = 0.0,
        dropout_output: float = 0.0,
        weight_drop: float = 0.0,
        input_noise: float = 0.0,  # standard deviation of normal noise on the embedded words
        lower_outputs: int = 0,  # how many layers below the last give their states to the head too
    ) -> None:
        super().__init__()
        self.hidden_sizes = tuple(hidden_sizes)
        layers = {f"hidden_sizes[{i}]": size for i, size in enumerate(self.hidden_sizes)}
        check_sizes(vocab_size=vocab_size, embed_dim=embed_dim, layers=len(layers), **layers)
        check_dropouts(
            dropout_words=dropout_words,
            dropout_input=dropout_input,
            dropout_hidden=dropout_hidden,
            dropout_output=dropout_output,
            weight_drop=weight_drop,
        )
        self.dropout_words = dropout_words
        self.dropout_input = dropout_input
        self.dropout_hidden = dropout_hidden
        self.dropout_output = dropout_output
        self.input_noise = input_noise
        self.lower_outputs = lower_outputs
        self.embedding = new_embedding(vocab_size, embed_dim)
        inputs = (embed_dim, *self.hidden_sizes[:-1])
        self.layers = nn.ModuleList(
            WeightDropLSTM(i, h, weight_drop) for i, h in zip(inputs, self.hidden_sizes, strict=True)
        )

    def initial_state(self, batch_size: int) -> list[State]:
        """Return the zero state of every layer, for a batch of `batch_size` columns."""
        zeros = [self.embedding.new_zeros(batch_size, h) for h in self.hidden_sizes]
        return [(z, z.clone()) for z in zeros]

    def forward(self, words: Tensor, state: list[State]) -> Hidden:
        x = embedding_dropout(words, self.embedding, self._p(self.dropout_words))
        x = gaussian_noise(x, self._p(self.input_noise))
        x = variational_dropout(x, self._p(self.dropout_input))
        new_state = []
        outputs = []
        rates = [self.dropout_hidden] * (len(self.layers) - 1) + [self.dropout_output]
        for layer, layer_state, rate in zip(self.layers, state, rates, strict=True):
            raw, layer_state = layer(x, layer_state)
            new_state.append(layer_state)
            x = variational_dropout(raw, self._p(rate))
            outputs.append(x)
        return Hidden(self._head_input(outputs), raw, new_state)

    @property
    def out_features(self) -> int:
        """The size of the head's input g."""
        return sum(self.hidden_sizes[-1 - self.lower_outputs :])

    def _head_input(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return g, given the outputs of all layers."""
        if self.lower_outputs == 0:
            return outputs[-1]
        return torch.cat([outputs[-1 - i] for i in range(self.lower_outputs + 1)], dim=-1)

    def _p(self, p: float) -> float:
        return p if self.training else 0.0

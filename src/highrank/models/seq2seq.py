"""A sequence-to-sequence model: a bidirectional LSTM encoder, an attentive LSTM decoder, and any of our heads.

    memory_i = [forward_i; backward_i]                                      encoder states of the context
    s_t = LSTM(w_(t-1), s_(t-1)),   s_0 = tanh(W_0 [forward_S; backward_1])
    c_t = sum_i softmax_i(s_t . W_a memory_i) memory_i                      attention (Luong et al. 2015, "general")
    g_t = tanh(W_c [s_t; c_t])                                              the head's input

g_t is not fed back into the LSTM, so training computes the LSTM, and then the attention, for all time steps at once.
Padding follows the real words and never changes their losses or any gradient.

Shapes: S context words, T response words, B contexts, V vocabulary; D embedding, E encoder (per direction), H decoder
and G attention size. Hidden states g are (T, B, G).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.data.dialog import Batch
from highrank.heads import Head
from highrank.models.awd_lstm import WeightDropLSTM
from highrank.models.language_model import build_head
from highrank.ops.dropout import variational_dropout
from highrank.ops.parameters import check_dropouts, check_sizes, new_embedding
from highrank.recipes.dialog import Seq2SeqSpec

IGNORED = -1  # replaces the targets at padding; not a word id


class DecoderState(NamedTuple):
    """An encoded context, and the decoder's state after some words of a response.

    The state may have several rows per context, as in beam search: row n * B + b belongs to context b. The memory is
    stored once per context.
    """

    keys: Tensor  # (S, B, H) W_a memory
    memory: Tensor  # (S, B, 2E)
    mask: Tensor  # (S, B) bool, True at real words
    h: Tensor  # (N, H)
    c: Tensor  # (N, H)


class EncoderDecoder(nn.Module):
    """The part of a sequence-to-sequence model below the head: words -> g."""

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        encoder_size: int,
        decoder_size: int,
        attention_size: int,
        *,
        dropout_input: float = 0.0,
        dropout_output: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            encoder_size=encoder_size,
            decoder_size=decoder_size,
            attention_size=attention_size,
        )
        check_dropouts(dropout_input=dropout_input, dropout_output=dropout_output)
        self.attention_size = attention_size
        self.dropout_input = dropout_input
        self.dropout_output = dropout_output
        self.embedding = new_embedding(vocab_size, embed_dim)
        self.forward_encoder = WeightDropLSTM(embed_dim, encoder_size, weight_drop=0.0)
        self.backward_encoder = WeightDropLSTM(embed_dim, encoder_size, weight_drop=0.0)
        self.bridge = nn.Linear(2 * encoder_size, 2 * decoder_size)  # W_0, for h and c
        self.decoder = WeightDropLSTM(embed_dim, decoder_size, weight_drop=0.0)
        self.key = nn.Linear(2 * encoder_size, decoder_size, bias=False)  # W_a
        self.combine = nn.Linear(decoder_size + 2 * encoder_size, attention_size)  # W_c

    def forward(self, batch: Batch) -> Tensor:
        """Return g (T, B, G) for every response word, given the ones before it."""
        g, _ = self.decode(batch.inputs, self.encode(batch.context, batch.context_mask))
        return g

    def encode(self, context: Tensor, mask: Tensor) -> DecoderState:
        """Encode (S, B) words, of which `mask` marks the real ones; return a state with one row per context."""
        lengths = mask.sum(0)  # (B,)
        position = torch.arange(len(context), device=context.device)[:, None]  # (S, 1)
        # Reverses the real words of each column and leaves its padding at the end; applied twice, it is the identity.
        reverse = torch.where(mask, lengths - 1 - position, position)[..., None]  # (S, B, 1)
        x = self._embed(context)
        zeros = x.new_zeros(context.shape[1], self.forward_encoder.hidden_size)
        ahead, _ = self.forward_encoder(x, (zeros, zeros))  # (S, B, E)
        back, _ = self.backward_encoder(x.gather(0, reverse.expand_as(x)), (zeros, zeros))
        # Both directions end at a column's last real step. Their outputs there hold h; c is not available.
        last = (lengths - 1)[None, :, None].expand(1, -1, ahead.shape[-1])
        final = torch.cat([ahead.gather(0, last), back.gather(0, last)], dim=-1)[0]  # (B, 2E)
        memory = torch.cat([ahead, back.gather(0, reverse.expand_as(back))], dim=-1)
        h, c = torch.tanh(self.bridge(final)).chunk(2, dim=-1)
        return DecoderState(self.key(memory), memory, mask, h, c)

    def decode(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read (T, N) words, T per row of the state; return g (T, N, G) and the state after them."""
        s, (h, c) = self.decoder(self._embed(words), (state.h, state.c))  # (T, N, H)
        # Rows of one context query the same memory, as time steps do, so both share a dimension in the attention.
        queries = s.reshape(-1, state.mask.shape[1], s.shape[-1])  # (T N / B, B, H)
        attended = attend(queries, state.keys, state.memory, state.mask).reshape(*s.shape[:2], -1)  # (T, N, 2E)
        g = torch.tanh(self.combine(torch.cat([s, attended.to(s.dtype)], dim=-1)))
        return self._drop(g, self.dropout_output), state._replace(h=h, c=c)

    def _embed(self, words: Tensor) -> Tensor:
        return self._drop(F.embedding(words, self.embedding), self.dropout_input)

    def _drop(self, x: Tensor, p: float) -> Tensor:
        return variational_dropout(x, p) if self.training else x


def attend(queries: Tensor, keys: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Average the memory at real words: (T, B, H), (S, B, H), (S, B, M), (S, B) mask -> (T, B, M)."""
    scores = torch.einsum("tbh,sbh->bts", queries, keys)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # the softmax needs more than half precision
    weights = torch.softmax(scores.masked_fill(~mask.t()[:, None], -torch.inf), dim=-1)  # (B, T, S)
    return torch.einsum("bts,sbm->tbm", weights.to(memory.dtype), memory)


class Seq2Seq(nn.Module):
    """Predicts each word of a response from its context and the words before it."""

    def __init__(self, backbone: EncoderDecoder, head: Head) -> None:
        super().__init__()
        if head.in_features != backbone.attention_size:
            raise ValueError(
                f"the head's in_features ({head.in_features}) must be the backbone's attention_size "
                f"({backbone.attention_size})"
            )
        self.backbone = backbone
        self.head = head

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of every target, (T, B), with 0 at padding."""
        return self.score(self.backbone(batch), batch)

    def score(self, g: Tensor, batch: Batch, slab_bytes: int | None = None) -> Tensor:
        """Return the loss of every target from the backbone's g, which may come from another precision."""
        targets = batch.targets.masked_fill(~batch.target_mask, IGNORED)
        return self.head.nll(g, targets, ignore_index=IGNORED, slab_bytes=slab_bytes)

    def encode(self, context: Tensor, mask: Tensor) -> DecoderState:
        """Encode (S, B) context words, of which `mask` marks the real ones, to start decoding from."""
        return self.backbone.encode(context, mask)

    def step(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one word per row, (N,); return log-probabilities of the next, (N, V), and the new state."""
        g, state = self.backbone.decode(words[None], state)
        return self.head.log_prob(g[0]), state

    def select_rows(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """Return the state whose row i is row rows[i] of `state`; both rows must belong to the same context."""
        return state._replace(h=state.h[rows], c=state.c[rows])

    def n_parameters(self) -> int:
        """Return the number of parameters, counting tied ones once."""
        return sum(p.numel() for p in self.parameters())


def build_seq2seq(spec: Seq2SeqSpec, vocab_size: int) -> Seq2Seq:
    """Build the model of a recipe; encoder, decoder and head share one word embedding."""
    backbone = EncoderDecoder(
        vocab_size,
        spec.embed_dim,
        spec.encoder_size,
        spec.decoder_size,
        spec.attention_size,
        dropout_input=spec.dropout_input,
        dropout_output=spec.dropout_output,
    )
    return Seq2Seq(backbone, build_head(spec, spec.attention_size, vocab_size, weight=backbone.embedding))

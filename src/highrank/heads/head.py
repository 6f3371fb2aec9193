"""The interface of every head, and the code that all heads share: the loss, tying, dtypes, target checks, padding.

Shapes: g (..., in_features), targets (...), N tokens in all, K components, D embedding size, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from highrank.ops import is_autocast
from highrank.ops.mos_nll import Impl, adversarial_margins, mos_nll
from highrank.ops.parameters import INIT_RANGE, new_embedding


class Head(nn.Module):
    """Turns hidden states into a distribution over words, and computes the loss of targets under it."""

    in_features: int
    vocab_size: int
    n_components: int  # K
    weight: nn.Parameter  # (V, D) word embeddings
    bias: nn.Parameter | None  # (V,)
    impl: Impl = "auto"  # how `mos_nll` computes the loss
    slab_bytes: int | None = None  # bytes of logits that it may hold at a time; None: its default
    sample_below: float | None = None  # rows with a smaller responsibility are sampled; None: exact gradients
    adversarial: float = 0.0  # eps of `adversarial_margins`, which lower the targets' logits in training; 0: none

    def nll(
        self, g: Tensor, targets: Tensor, *, ignore_index: int | None = None, slab_bytes: int | None = None
    ) -> Tensor:
        """Return the negative log-likelihood of each target, in float32 (float64 for a float64 head), shape (...).

        Targets may have any integer dtype. Targets equal to `ignore_index` are padding: their loss is 0 and has no
        gradient, even where g is NaN. Other targets outside the vocabulary raise a ValueError on the CPU; on a GPU, or
        when compiled, they fail in the kernel or make the loss NaN. `slab_bytes` replaces the head's own for this call.
        """
        tokens = mask_padding(g, targets, self.vocab_size, ignore_index)
        log_pi, h = self.softmaxes(tokens.g)
        h = h.reshape(-1, *h.shape[-2:])  # (N, K, D)
        words = tokens.targets.reshape(-1)  # (N,)
        nll = mos_nll(
            h,
            log_pi.reshape(-1, log_pi.shape[-1]),  # (N, K)
            self.weight,
            self.bias,
            words,
            impl=self.impl,
            slab_bytes=self.slab_bytes if slab_bytes is None else slab_bytes,
            sample_below=self.sample_below,
            margins=self.margins(h, words),
        )
        return tokens.zero_padding(nll.view(targets.shape))

    def log_prob(self, g: Tensor) -> Tensor:
        """Return the log-probabilities of the whole vocabulary, (..., V)."""
        raise NotImplementedError

    def components(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mixture weights pi (..., K) and the context vectors h (..., K, D)."""
        log_pi, h = self.softmaxes(g)
        return log_pi.exp(), h

    def softmaxes(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log weights and context vectors of the softmaxes that predict: K for MoS, one for other heads."""
        raise NotImplementedError

    def margins(self, h: Tensor, targets: Tensor) -> Tensor | None:
        """Return how much training lowers the targets' logits, (N, K, D), (N,) -> (N, K), or None."""
        if not self.training or self.adversarial == 0:
            return None
        return adversarial_margins(h, self.weight, targets, self.adversarial)

    def forward(
        self,
        g: Tensor,
        targets: Tensor | None = None,
        *,
        ignore_index: int | None = None,
        slab_bytes: int | None = None,
    ) -> Tensor:
        """Return `nll(g, targets)`, or `log_prob(g)` without targets, which a model can use as its logits.

        This is the entry point for hooks, `torch.compile` and data parallelism.
        """
        if targets is None:
            return self.log_prob(g)
        nll = self.nll(g, targets, ignore_index=ignore_index, slab_bytes=slab_bytes)
        # Without `ignore_index`, nll is a view, and FSDP2 warns when it hooks a view; with it, nll is a new tensor.
        return nll.clone() if ignore_index is None else nll

    def reset_parameters(self) -> None:
        """Draw new output embeddings, also if they are tied, and set the bias to zero, as in the released code.

        Does not reset the submodules of a subclass, such as `prior` and `latent` of `MoSHead`.
        """
        nn.init.uniform_(self.weight, -INIT_RANGE, INIT_RANGE)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def tied_or_new_embedding(weight: nn.Parameter | None, vocab_size: int, embed_dim: int) -> nn.Parameter:
    """Return the given (V, D) parameter after checking it, or a new one if there is none."""
    if weight is None:
        return new_embedding(vocab_size, embed_dim)
    if not isinstance(weight, nn.Parameter):  # a plain tensor would not be trained, saved or moved
        raise TypeError(f"weight must be the parameter to tie, such as embedding.weight, got {type(weight).__name__}")
    if weight.shape != (vocab_size, embed_dim):
        raise ValueError(
            f"the tied weight must have shape (V, D) = {(vocab_size, embed_dim)}, got {tuple(weight.shape)}"
        )
    return weight


def cast_for_product(g: Tensor, weight: Tensor) -> Tensor:
    """Check g, and cast it to the dtype of `weight`; autocast casts by itself, except from float64."""
    if not g.is_floating_point():
        raise ValueError(f"g must have a floating-point dtype, got {g.dtype}")
    if g.shape[-1:] != weight.shape[-1:]:
        raise ValueError(f"g must have in_features = {weight.shape[-1]} as its last size, got shape {tuple(g.shape)}")
    if is_autocast(g.device.type) and torch.float64 not in (g.dtype, weight.dtype):
        return g
    return g.to(weight.dtype)


class MaskedTokens(NamedTuple):
    """Hidden states and targets, with harmless values in place of padding."""

    g: Tensor  # (..., in_features), 0 at padding, where a NaN would reach the gradients through 0 * NaN
    targets: Tensor  # (...) int64, word 0 at padding
    padding: Tensor | None  # (...) bool; None without an `ignore_index`

    def zero_padding(self, nll: Tensor) -> Tensor:
        """Return `nll` with 0 at padding."""
        return nll if self.padding is None else nll.masked_fill(self.padding, 0.0)


def mask_padding(g: Tensor, targets: Tensor, vocab_size: int, ignore_index: int | None) -> MaskedTokens:
    """Check that targets are word ids or padding, one per state of g, and mask the padding."""
    if g.shape[:-1] != targets.shape:
        raise ValueError(f"targets must have g's leading shape {tuple(g.shape[:-1])}, got {tuple(targets.shape)}")
    if targets.dtype == torch.bool or targets.is_floating_point() or targets.is_complex():
        raise ValueError(f"targets must have an integer dtype, got {targets.dtype}")
    targets = targets.long()
    # On a GPU, reading the values would make the host wait; in a compiled graph, it would break the graph.
    if targets.device.type == "cpu" and not torch.compiler.is_compiling():
        invalid = targets[((targets < 0) | (targets >= vocab_size)) & (targets != ignore_index)]
        if invalid.numel():
            raise ValueError(
                f"targets must be word ids from 0 to {vocab_size - 1}, got {int(invalid[0])}; "
                "if that is padding, pass it as ignore_index"
            )
    if ignore_index is None:
        return MaskedTokens(g, targets, None)
    padding = targets == ignore_index
    return MaskedTokens(g.masked_fill(padding.unsqueeze(-1), 0), targets.masked_fill(padding, 0), padding)

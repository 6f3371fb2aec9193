"""What every head shares: its loss, which sees each as a mixture of softmaxes (Softmax and MoC: of one).

Shapes: g (..., in_features), targets (...), log pi (..., K), h (..., K, D), V words.
"""

import torch
from torch import Tensor, nn

from highrank.heads.output_embedding import INIT_RANGE, match_targets
from highrank.ops.mos_nll import Impl, mos_nll


class Head(nn.Module):
    in_features: int
    vocab_size: int
    weight: nn.Parameter  # (V, D)
    bias: nn.Parameter | None  # (V,)
    impl: Impl  # how `mos_nll` computes the loss,
    slab_bytes: int | None  # and within which memory

    def softmaxes(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """log pi (..., K) and h (..., K, D) of the softmaxes whose mixture predicts the next word."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draw the output embedding and bias anew, as in the released code; the mixtures' other parts have their own.

        A tied embedding is drawn anew too.
        """
        nn.init.uniform_(self.weight, -INIT_RANGE, INIT_RANGE)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self, g: Tensor, targets: Tensor, *, ignore_index: int | None = None, slab_bytes: int | None = None
    ) -> Tensor:
        """`nll`, for what calls modules: hooks, `torch.compile`, data parallelism."""
        nll = self.nll(g, targets, ignore_index=ignore_index, slab_bytes=slab_bytes)
        return nll.clone() if ignore_index is None else nll  # not a view, on which FSDP2 warns to hang its hook

    def nll(
        self, g: Tensor, targets: Tensor, *, ignore_index: int | None = None, slab_bytes: int | None = None
    ) -> Tensor:
        """Negative log-likelihood of each target, in float32, of targets' shape; never builds (N, K, V).

        Targets are of any integer dtype. Those equal to `ignore_index` are padding: their loss is 0, and has no
        gradient, whatever their state is. `slab_bytes`, if given, replaces the head's.
        """
        targets = match_targets(g, targets, self.vocab_size, ignore_index)
        padding = None if ignore_index is None else targets == ignore_index
        if padding is not None:
            g = torch.where(padding.unsqueeze(-1), 0.0, g)  # it may be NaN or infinite: no weight of 0 would undo that
        log_pi, h = self.softmaxes(g)
        nll = mos_nll(
            h.reshape(-1, *h.shape[-2:]),
            log_pi.reshape(-1, log_pi.shape[-1]),
            self.weight,
            self.bias,
            (targets if padding is None else targets.masked_fill(padding, 0)).reshape(-1),
            impl=self.impl,
            slab_bytes=self.slab_bytes if slab_bytes is None else slab_bytes,
        ).view(targets.shape)
        return nll if padding is None else nll.masked_fill(padding, 0.0)


def one_softmax(h: Tensor) -> tuple[Tensor, Tensor]:
    """A single context vector (..., D) as a mixture of one: log pi = 0 (..., 1) and h (..., 1, D)."""
    return h.new_zeros(*h.shape[:-1], 1, dtype=torch.promote_types(h.dtype, torch.float32)), h.unsqueeze(-2)

"""The Mixture-of-Softmaxes head (section 2.4 of the paper).

    pi_k = softmax_k(w_pi,k . g)                      mixture weights
    h_k = s tanh(W_h,k g + b_h,k)                     context vectors; s = 1 in the paper
    p(x | c) = sum_k pi_k softmax(h_k W^T + b)_x      mixed after the softmax: the rank of log p is not limited by D

`MoSHead.from_linear` puts a mixture in the place of a linear layer, and starts exactly equal to it:

    h_k = g + U_k tanh(W_h,k g + b_h,k)               U = 0 and pi uniform at the start

Shapes: g (..., in_features), K components, D embedding size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.heads.head import Head, cast_for_product, tied_or_new_embedding
from highrank.ops.dropout import variational_dropout
from highrank.ops.linear import AlignedLinear
from highrank.ops.mos_nll import Impl
from highrank.ops.parameters import check_dropouts, check_sizes


class MoSHead(Head):
    """A mixture of K softmaxes that share one output embedding, weighted by a prior that depends on g.

    `weight` ties the output embedding to a (vocab_size, embed_dim) parameter. In training, `dropout` zeroes the same
    features of h at every time step; g is (time, batch, in_features), or (batch, time, in_features) with `batch_first`.
    A g of two dimensions has no time dimension: every row gets its own mask. With `shared_mask`, all K components
    lose the same features.
    `scale` is the constant s. By default it fits the embeddings: `init_mixture` explains it.
    `impl`, `slab_bytes` and `sample_below` are passed to `highrank.ops.mos_nll`; `sample_below` makes training faster
    with unbiased estimates of the gradients.

    >>> head = MoSHead(in_features=620, embed_dim=280, vocab_size=10_000, n_components=15, dropout=0.29)
    >>> pi, h = head.components(torch.randn(5, 620))
    >>> pi.shape, h.shape
    (torch.Size([5, 15]), torch.Size([5, 15, 280]))
    """

    def __init__(
        self,
        in_features: int,
        embed_dim: int,
        vocab_size: int,
        n_components: int,
        *,
        dropout: float = 0.0,
        shared_mask: bool = False,
        batch_first: bool = False,
        bias: bool = True,
        weight: nn.Parameter | None = None,
        scale: float | None = None,
        impl: Impl = "auto",
        slab_bytes: int | None = None,
        sample_below: float | None = None,
    ) -> None:
        super().__init__()
        check_sizes(in_features=in_features, embed_dim=embed_dim, vocab_size=vocab_size, n_components=n_components)
        check_dropouts(dropout=dropout)
        self.in_features = in_features
        self.embed_dim = embed_dim
        self.vocab_size = vocab_size
        self.n_components = n_components
        self.dropout = dropout
        self.shared_mask = shared_mask
        self.batch_first = batch_first
        self.impl = impl
        self.slab_bytes = slab_bytes
        self.sample_below = sample_below
        # As in the released code, the prior has no bias and the projection to context vectors has one.
        self.prior = nn.Linear(in_features, n_components, bias=False)
        self.latent = AlignedLinear(in_features, n_components * embed_dim)  # an nn.Linear that is fast for any size
        self.weight = tied_or_new_embedding(weight, vocab_size, embed_dim)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.scale: Tensor | float
        if scale is None:
            self.register_buffer("scale", _fitting_scale(self.weight))  # saved with the weights: it depends on them
        else:
            self.scale = scale

    def init_mixture(self) -> None:
        """Draw `prior` and `latent` like `nn.Linear`, and fit the default `scale` to the present embeddings.

        tanh bounds h, so with small embeddings all logits are close to zero and a model hardly learns at first. The
        default scale, one over the root mean square norm of the embeddings, gives every size of embeddings the logits
        that the paper's have at the start: U(-0.1, 0.1) with D = 300 has norm 1.

        Call it after initialising a tied embedding that was already given to the head, or the whole model with
        `model.apply(...)`.
        """
        self.prior.reset_parameters()
        self.latent.reset_parameters()
        self._fit_scale()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._fit_scale()

    def _fit_scale(self) -> None:
        if isinstance(self.scale, Tensor):
            self.scale.copy_(_fitting_scale(self.weight))

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, n_components: int, *, impl: Impl = "auto", slab_bytes: int | None = None
    ) -> "ResidualMoSHead":
        """Return a mixture with exactly the distribution of softmax(linear(g)), whose components separate in training.

        It shares the weight and bias of `linear`, so a tied embedding stays tied, and has its dtype and device.

        >>> head = MoSHead.from_linear(nn.Linear(64, 1000), n_components=4)
        >>> head.log_prob(torch.randn(5, 64)).shape
        torch.Size([5, 1000])
        """
        if not issubclass(ResidualMoSHead, cls):  # MoCHead inherits this method
            raise TypeError(f"from_linear makes a mixture of softmaxes, not a {cls.__name__}: call MoSHead.from_linear")
        # Quantised layers are subclasses of nn.Linear or have weights of another type; the loss would misread them.
        if type(linear) is not nn.Linear or type(linear.weight) is not nn.Parameter:
            raise TypeError(f"linear must be an nn.Linear that is not quantised, got {type(linear).__name__}")
        weight = linear.weight
        vocab_size, features = weight.shape
        with weight.device:
            head = ResidualMoSHead(
                features, vocab_size, n_components, bias=False, weight=weight, impl=impl, slab_bytes=slab_bytes
            ).to(weight.dtype)
        head.bias = linear.bias
        return head

    def components(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mixture weights pi (..., K) and the context vectors h (..., K, D)."""
        log_pi, h = self.log_components(g)
        return log_pi.exp(), h

    def log_components(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return log pi (..., K), in float32 at least, and h (..., K, D)."""
        log_pi = self.log_prior(g)
        h = torch.tanh(self.features(g))  # (..., K D)
        if isinstance(self.scale, Tensor) or self.scale != 1:
            h = self.scale * h
        if self.training:
            groups = self.n_components if self.shared_mask else 1
            h = variational_dropout(h, self.dropout, time_dim=1 if self.batch_first else 0, groups=groups)
        return log_pi, h.unflatten(-1, (self.n_components, self.embed_dim))

    def log_prior(self, g: Tensor) -> Tensor:
        """Return log pi (..., K), in float32 at least."""
        g = cast_for_product(g, self.prior.weight)
        return torch.log_softmax(self.prior(g).to(torch.promote_types(g.dtype, torch.float32)), dim=-1)

    def features(self, g: Tensor) -> Tensor:
        """Return the vectors whose tanh are the context vectors, side by side: (..., K D)."""
        features: Tensor = self.latent(cast_for_product(g, self.latent.weight))
        return features

    def softmaxes(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log weights (..., K) and context vectors (..., K, D) of the softmaxes to mix.

        `log_prob` mixes them, and `Head.nll` computes the loss from them. `MoCHead` returns a single softmax.
        """
        return self.log_components(g)

    def log_prob(self, g: Tensor) -> Tensor:
        """Return the log-probabilities of the whole vocabulary, (..., V)."""
        log_pi, h = self.softmaxes(g)
        mixed: Tensor | None = None
        for k in range(h.shape[-2]):  # one component at a time: (..., K, V) is never built
            logits = F.linear(h[..., k, :], self.weight, self.bias)  # (..., V)
            log_p = torch.log_softmax(logits.to(log_pi.dtype), dim=-1) + log_pi[..., k, None]
            mixed = log_p if mixed is None else torch.logaddexp(mixed, log_p)
        assert mixed is not None  # there is at least one softmax
        return mixed

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, embed_dim={self.embed_dim}, vocab_size={self.vocab_size}"
        return f"{sizes}, n_components={self.n_components}, dropout={self.dropout}, bias={self.bias is not None}"


def _fitting_scale(weight: Tensor) -> Tensor:
    """Return one over the root mean square norm of the (V, D) embeddings."""
    norm = torch.linalg.vector_norm(weight.detach().float(), dim=1)
    if hasattr(norm, "full_tensor"):  # a DTensor: FSDP2 has sharded the embeddings
        norm = norm.full_tensor()
    return norm.square().mean().rsqrt()


class ResidualMoSHead(MoSHead):
    """A mixture that starts as a softmax of g: h_k = g + U_k tanh(W_h,k g + b_h,k) with U = 0 and a uniform prior.

    The W_h,k differ, so the gradients of the U_k differ and the components separate from the first step on.
    `MoSHead.from_linear` makes one from a linear layer.
    """

    def __init__(
        self,
        in_features: int,
        vocab_size: int,
        n_components: int,
        *,
        bias: bool = True,
        weight: nn.Parameter | None = None,
        impl: Impl = "auto",
        slab_bytes: int | None = None,
    ) -> None:
        super().__init__(
            in_features,
            in_features,
            vocab_size,
            n_components,
            bias=bias,
            weight=weight,
            scale=1.0,  # g already has the scale that suits the embeddings
            impl=impl,
            slab_bytes=slab_bytes,
        )
        nn.init.zeros_(self.prior.weight)
        self.shift = Shift(n_components, in_features)

    def init_mixture(self) -> None:
        """Make the mixture equal to a softmax of g again: U = 0, a uniform prior and new W_h,k."""
        super().init_mixture()
        nn.init.zeros_(self.prior.weight)
        self.shift.reset_parameters()

    def log_components(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return log pi (..., K), in float32 at least, and h (..., K, D)."""
        log_pi, features = super().log_components(g)
        return log_pi, cast_for_product(g, self.latent.weight).unsqueeze(-2) + self.shift(features)


class Shift(nn.Module):
    """Multiplies each component's features by its own matrix U_k: (..., K, D) -> (..., K, D)."""

    def __init__(self, n_components: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_components, features, features))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        return torch.einsum("...ke,kde->...kd", features, self.weight)

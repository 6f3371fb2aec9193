"""The exact spectrum of a softmax model from its hidden states and output matrix, for any vocabulary.

    log P = H W^T + 1 b^T - z 1^T = [1 H z] [b W -1]^T          z_t = log sum_x exp(h_t . w_x + b_x)

Both factors have D + 2 columns, which bounds the rank. The singular values are those of the (D + 2) x (D + 2) matrix
R_left R_right^T, with R from the QR of each factor, so neither a (T, V) nor a (V, V) matrix is stored.

Because the first column of [1 H z] is ones, the rest of R_left is the R factor of the centred [H z]. Its product with
the R factor of [W -1] has the spectrum of log P minus its mean over contexts: the part that varies with context.

    from highrank.analysis import analyze_softmax
    result = analyze_softmax(hidden, weight, bias)             # (T, D), (V, D), (V,) or None
    result.analysis.rank, result.rank_bound, result.output_values, result.varying_values

Shapes: H (T, D) inputs of the output layer; W (V, D); b (V,); z (T,).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank import memory
from highrank.analysis.matrix import CONTEXTS, KLD_STAGE, WINDOW, Analysis, RowObserver, StageTimer, context_count
from highrank.analysis.rank import RowReducer, effective_rank, press_tolerance, singular_values
from highrank.progress import OnStage, no_stages


@dataclass(frozen=True)
class SoftmaxAnalysis:
    """The result of `analyze_softmax`."""

    analysis: Analysis  # of log P; its spectrum has at most D + 2 values
    embed_dim: int  # D
    rank_bound: int  # D + 2, or D + 1 without a bias, and at most T and V
    output_values: Tensor  # singular values of W
    varying_values: Tensor  # singular values of log P minus its mean over contexts

    def directions(self, share: float) -> int:
        """Return how many directions hold this share of the variance of log P over contexts."""
        energy = self.varying_values.square().cumsum(0)
        return int((energy < share * energy[-1]).sum()) + 1


@torch.no_grad()
def analyze_softmax(
    hidden: Tensor | Iterable[Tensor],  # (T, D), or consecutive blocks of it
    weight: Tensor,  # (V, D)
    bias: Tensor | None = None,  # (V,)
    *,
    tokens: int | None = None,  # T, required for blocks
    ids: Tensor | None = None,  # (T,) the tokens that were read, for the perplexity
    contexts: int = CONTEXTS,
    seed: int = 0,
    on_stage: OnStage = no_stages,
) -> SoftmaxAnalysis:
    """Compute rank, spectrum, pairwise KLD and the use of the output matrix of a model with logits H W^T + b.

    Everything is cast to float64; hidden states of lower precision are used as they are.
    """
    if isinstance(hidden, Tensor):
        tokens = len(hidden)
        hidden = [hidden]
    if not tokens:
        raise ValueError("there are no hidden states, or `tokens` is missing")
    weight = weight.double()
    bias = None if bias is None else bias.double()
    vocabulary, dim = weight.shape
    device = weight.device
    contexts = context_count(tokens, vocabulary, contexts)
    timer = StageTimer(device)
    memory.reset_peak(device)
    observer = RowObserver(tokens, ids, vocabulary, contexts, seed, device)
    reducer = RowReducer()
    for block in (part for states in hidden for part in states.split(WINDOW)):
        if block.dim() != 2 or block.shape[1] != dim:
            raise ValueError(f"hidden states must be (t, {dim}) like the output matrix, got {tuple(block.shape)}")
        h = block.to(device).double()
        logits = torch.nn.functional.linear(h, weight, bias)  # (t, V)
        z = logits.logsumexp(-1, keepdim=True)  # (t, 1)
        observer.add(logits.sub_(z))
        reducer.add(torch.cat([torch.ones_like(z), h, z], dim=1))  # (t, D + 2)
        on_stage("hidden states, reduced by QR", reducer.rows, tokens)
    if reducer.rows != tokens:
        raise ValueError(f"expected {tokens} hidden states, got {reducer.rows}")
    left = torch.linalg.qr(reducer.factor(), mode="r").R  # of [1 H z]
    ones = torch.ones_like(weight[:, :1])
    right = torch.linalg.qr(torch.cat([weight, -ones, 0 * ones if bias is None else bias[:, None]], 1), mode="r").R
    timer.end("rows")

    on_stage(f"singular values of a {dim + 2:,} x {dim + 2:,} matrix, and of the output matrix", 0, None)
    # The leading squares of the R factor of [W -1 b] are the R factors of W and of [W -1].
    output_values = singular_values(right[:dim, :dim]).cpu()
    varying_values = singular_values(left[1:, 1:] @ right[: dim + 1, : dim + 1].T).cpu()
    values = singular_values(left @ right.roll(1, dims=1).T).cpu()[: min(tokens, vocabulary)]
    timer.end("svd")

    on_stage(KLD_STAGE, 0, None)
    kld = observer.kld()
    timer.end("kld")
    tolerance = press_tolerance(values[0].item(), tokens, vocabulary)
    analysis = Analysis(
        tokens=tokens,
        vocabulary=vocabulary,
        rank=int((values > tolerance).sum()),
        effective_rank=effective_rank(values),
        tolerance=tolerance,
        projected=None,
        singular_values=values,
        kld=kld,
        perplexity=observer.perplexity(),
        seconds=timer.seconds,
        peak_bytes=memory.peak_bytes(device),
    )
    bound = min(dim + (1 if bias is None else 2), tokens, vocabulary)
    return SoftmaxAnalysis(analysis, dim, bound, output_values, varying_values)

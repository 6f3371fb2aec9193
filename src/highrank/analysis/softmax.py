"""The exact spectrum of a softmax model from its hidden states and output matrix, for any vocabulary.

    log P = H W^T + 1 b^T - z 1^T = [1 H z] [b W -1]^T          z_t = log sum_x exp(h_t . w_x + b_x)

Both factors have D + 2 columns, which bounds the rank. The singular values are those of the (D + 2) x (D + 2) matrix
R_left R_right^T, with R from the QR of each factor, so neither a (T, V) nor a (V, V) matrix is stored.

Because the first column of [1 H z] is ones, the rest of R_left is the R factor of the centred [H z]. Its product with
the R factor of [W -1] has the spectrum of log P minus its mean over contexts: the part that varies with context.

    from highrank.analysis import analyze_softmax
    result = analyze_softmax(hidden, weight, bias)             # (T, D), (V, D), (V,) or None
    result.rank, result.rank_bound, result.varying

Shapes: H (T, D) inputs of the output layer; W (V, D); b (V,); z (T,).
"""

import torch
from torch import Tensor

from highrank.analysis.factors import r_factor
from highrank.analysis.matrix import CONTEXTS, WINDOW, RowObserver, context_count
from highrank.analysis.rank import RowReducer, effective_rank, singular_values
from highrank.analysis.record import Analysis, Varying, full_spectrum, thin_spectrum
from highrank.progress import OnStage, no_stages


@torch.no_grad()
def analyze_softmax(
    hidden: Tensor,  # (T, D)
    weight: Tensor,  # (V, D)
    bias: Tensor | None = None,  # (V,)
    *,
    ids: Tensor | None = None,  # (T,) the tokens that were read, for the perplexity
    contexts: int = CONTEXTS,
    seed: int = 0,
    on_stage: OnStage = no_stages,
) -> Analysis:
    """Compute rank, spectrum and pairwise KLD of a model with logits H W^T + b.

    Everything is cast to float64; hidden states of lower precision are used as they are.
    """
    if hidden.dim() != 2 or len(hidden) < 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(f"hidden states must be (T, {weight.shape[1]}), T >= 2, got {tuple(hidden.shape)}")
    weight = weight.double()
    bias = None if bias is None else bias.double()
    tokens = len(hidden)
    vocabulary, dim = weight.shape
    contexts = context_count(tokens, vocabulary, contexts)
    observer = RowObserver(tokens, ids, vocabulary, contexts, seed, weight.device)
    reducer = RowReducer()
    for block in hidden.split(WINDOW):
        h = block.to(weight.device).double()
        logits = torch.nn.functional.linear(h, weight, bias)  # (t, V)
        z = logits.logsumexp(-1, keepdim=True)  # (t, 1)
        observer.add(logits.sub_(z))
        reducer.add(torch.cat([torch.ones_like(z), h, z], dim=1))  # (t, D + 2)
        on_stage("hidden states, reduced by QR", reducer.rows, tokens)
    left = r_factor(reducer.factor())  # of [1 H z]
    ones = torch.ones_like(weight[:, :1])
    right = r_factor(torch.cat([weight, -ones, 0 * ones if bias is None else bias[:, None]], 1))
    observer.end_stage("rows")

    on_stage(f"singular values of a {dim + 2:,} x {dim + 2:,} matrix", 0, None)
    # The leading square of the R factor of [W -1 b] is the R factor of [W -1].
    varying_values = singular_values(left[1:, 1:] @ right[: dim + 1, : dim + 1].T).cpu()
    # Rolled, the columns of [W -1 b] have the order of [b W -1], which matches that of [1 H z].
    values = singular_values(left @ right.roll(1, dims=1).T).cpu()[: min(tokens, vocabulary)]
    return observer.result(
        values,
        on_stage,
        head="softmax",
        embed_dim=dim,
        rank_bound=min(dim + (1 if bias is None else 2), tokens, vocabulary),
        varying=Varying(
            effective_rank=effective_rank(varying_values),
            directions_90=_directions(varying_values, 0.9),
            directions_99=_directions(varying_values, 0.99),
            spectrum=thin_spectrum(full_spectrum(varying_values)),
        ),
    )


def _directions(values: Tensor, share: float) -> int:
    """Return how many directions hold this share of the variance, the sum of the squared singular values."""
    energy = values.square().cumsum(0)
    return int((energy < share * energy[-1]).sum()) + 1

"""The exact spectrum of a softmax model from its hidden states and output matrix, for any vocabulary.

    log P = H W^T + 1 b^T - z 1^T = [1 H z] [b W -1]^T          z_t = log sum_x exp(h_t . w_x + b_x)

Both factors have D + 2 columns: so much for the rank bound, and so the singular values are those of R_left R_right^T,
(D + 2) x (D + 2), with R from the QR of each factor. Neither (T, V) nor (V, V) is ever held.

The first column of ones makes the rest of R_left the factor of the centred [H z]; with that of [W -1] it gives the
spectrum of log P minus its mean over contexts, the part that context changes.

    from highrank.analysis import analyze_softmax
    found = analyze_softmax(hidden, weight, bias)             # (T, D), (V, D), (V,) or None
    found.analysis.rank, found.rank_bound, found.output_values, found.varying_values

Shapes: H (T, D) hidden states as the output layer sees them; W (V, D); b (V,); z (T,).
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.analysis.matrix import CONTEXTS, WINDOW, Analysis, Observer, Stages, context_count
from highrank.analysis.memory import PeakMemory
from highrank.analysis.rank import RowReducer, effective_rank, press_tolerance, singular_values
from highrank.progress import OnStage


@dataclass(frozen=True)
class SoftmaxAnalysis:
    analysis: Analysis  # of log P; its spectrum has at most D + 2 values
    embed_dim: int  # D
    rank_bound: int  # D + 2, or D + 1 without a bias; no more than T or V
    output_values: Tensor  # singular values of W
    varying_values: Tensor  # of log P minus its mean over contexts

    def directions(self, share: float) -> int:
        """How many directions hold this share of the variance of log P over contexts."""
        energy = self.varying_values.square().cumsum(0)
        return int((energy < share * energy[-1]).sum()) + 1


@torch.no_grad()
def analyze_softmax(
    hidden: Tensor | Iterable[Tensor],  # (T, D), or blocks of it in order
    weight: Tensor,  # (V, D)
    bias: Tensor | None = None,  # (V,)
    *,
    tokens: int | None = None,  # T, needed for blocks
    ids: Tensor | None = None,  # (T,) the words that were read, for the perplexity
    contexts: int = CONTEXTS,
    seed: int = 0,
    on_progress: OnStage | None = None,
) -> SoftmaxAnalysis:
    """Rank, spectrum, pairwise KLD and the use of the output matrix, of any model whose logits are H W^T + b.

    Everything is cast to float64 first; hidden states of less precision are taken as they are.
    """
    if isinstance(hidden, Tensor):
        tokens, hidden = len(hidden), [hidden]
    if not tokens:
        raise ValueError("there are no hidden states to analyse, or `tokens` does not say how many there are")
    weight = weight.double()
    bias = None if bias is None else bias.double()
    (vocabulary, dim), device = weight.shape, weight.device
    contexts = context_count(tokens, vocabulary, contexts)
    stages, peak = Stages(device, on_progress), PeakMemory(device)
    observer = Observer(tokens, ids, vocabulary, contexts, seed, device)
    reducer = RowReducer()
    for h in _small_blocks(hidden, dim, device):
        logits = torch.nn.functional.linear(h, weight, bias)  # (t, V)
        z = logits.logsumexp(-1, keepdim=True)  # (t, 1)
        observer.see(logits.sub_(z))
        reducer.add(torch.cat([torch.ones_like(z), h, z], dim=1))  # (t, D + 2)
        stages.tell("hidden states, reduced by QR", reducer.rows, tokens)
    if reducer.rows != tokens:
        raise ValueError(f"{tokens} hidden states were announced and {reducer.rows} came")
    left = torch.linalg.qr(reducer.factor(), mode="r").R  # of [1 H z]
    ones = torch.ones_like(weight[:, :1])
    right = torch.linalg.qr(torch.cat([weight, -ones, 0 * ones if bias is None else bias[:, None]], 1), mode="r").R
    stages.end("rows")

    stages.tell(f"singular values of a {dim + 2:,} x {dim + 2:,} matrix, and of the output matrix")
    # The leading squares of R are the factors of W, and of [W -1], which goes with the centred [H z].
    output_values = singular_values(right[:dim, :dim]).cpu()
    varying = singular_values(left[1:, 1:] @ right[: dim + 1, : dim + 1].T).cpu()
    values = singular_values(left @ right.roll(1, dims=1).T).cpu()[: min(tokens, vocabulary)]
    stages.end("svd")

    stages.tell(f"KL divergence of all pairs of {contexts:,} contexts")
    kld = observer.kld()
    stages.end("kld")
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
        seconds=stages.seconds,
        peak_bytes=peak.bytes(),
    )
    bound = min(dim + (1 if bias is None else 2), tokens, vocabulary)
    return SoftmaxAnalysis(analysis, dim, bound, output_values, varying)


def _small_blocks(hidden: Iterable[Tensor], dim: int, device: torch.device) -> Iterator[Tensor]:
    for block in itertools.chain.from_iterable(h.split(WINDOW) for h in hidden):
        if block.dim() != 2 or block.shape[1] != dim:
            raise ValueError(f"hidden states must be (t, {dim}) like the output matrix, got {tuple(block.shape)}")
        yield block.to(device).double()

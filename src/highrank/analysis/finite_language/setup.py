"""What a run of the laboratory is about: the language, the heads, and the D to fit (N, M, K and D of the paper)."""

import dataclasses

import torch

from highrank.data.synthetic import FiniteLanguage, low_rank_language
from highrank.errors import UserError

SCALE = 1.5  # standard deviation of the logits: a few words share most of the probability
LARGEST = 20_000_000  # numbers in the (N, K, M) tensor


@dataclasses.dataclass(frozen=True)
class Setup:
    """The user's choices, checked when they are made."""

    contexts: int = 64
    words: int = 32
    rank: int | None = None  # of A; None: half of the smaller of contexts and words
    dims: tuple[int, ...] = ()  # empty: chosen around the rank
    components: int = 4
    bias: bool = False
    unigram: bool = False
    seed: int = 1
    quick: bool = False

    def __post_init__(self) -> None:
        n, m = self.contexts, self.words
        if n < 2 or m < 2:
            raise UserError(f"a language needs at least 2 contexts and 2 words, got {n} and {m}.")
        if self.components < 1:
            raise UserError(f"--components must be at least 1, got {self.components}.")
        if not 2 + self.unigram <= self.true_rank <= min(n, m):
            why = "; below, every context would say the same" if self.true_rank < 2 + self.unigram else ""
            raise UserError(
                f"--rank must lie between {2 + self.unigram} and the smaller of contexts and words, {min(n, m)}, "
                f"got {self.true_rank}{why}."
            )
        if any(d < 1 for d in self.dims):
            raise UserError(f"every D must be at least 1, got {min(self.dims)}.")
        if n * m * self.components > LARGEST or max(self.dims, default=1) > max(n, m):
            raise UserError(
                f"the laboratory is for small languages: keep contexts x words x components under {LARGEST:,} "
                f"and D at most {max(n, m)}, the larger of contexts and words."
            )
        if not 0 <= self.seed < 2**63:
            raise UserError(f"--seed must lie between 0 and 2^63 - 1, got {self.seed}.")

    @property
    def true_rank(self) -> int:
        return max(2 + self.unigram, min(self.contexts, self.words) // 2) if self.rank is None else self.rank

    @property
    def swept(self) -> list[int]:
        """The D of the sweep: those asked for, or about a dozen up to rank(A), every one of them near its end."""
        if self.dims:
            return sorted(set(self.dims))
        last, steps = self.true_rank, 4 if self.quick else 8
        spread = {max(1, round(last * i / steps)) for i in range(steps + 1)}
        near = {last - 2, last - 1, last} if self.quick else {1, 2, 3, last - 3, last - 2, last - 1, last}
        return sorted(d for d in spread | near if 1 <= d <= last)

    def language(self) -> FiniteLanguage:
        generator = torch.Generator().manual_seed(self.seed)
        return low_rank_language(self.contexts, self.words, self.true_rank, SCALE, generator, self.unigram)

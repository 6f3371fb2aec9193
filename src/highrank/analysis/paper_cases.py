"""The six steps of Penn Treebank's test set that the paper shows (appendix, "Qualitative Analysis").

A case is found by the reference and the last words before it. The predictions of the paper's MoS and MoC are from its
table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from highrank.analysis.context import phrase_ends

CORPUS, SPLIT = "penn", "test"


@dataclass(frozen=True)
class PaperCase:
    number: int
    key: str  # the last words before the reference
    reference: str
    mos: str  # the most probable words of the paper's MoS
    moc: str


PAPER_CASES = (
    PaperCase(
        1, "week 's total of N", "tons",
        "million 0.38, tons 0.24, billion 0.09, barrels 0.06, ounces 0.04",
        "billion 0.39, million 0.36, trillion 0.05, <eos> 0.04, N 0.03",
    ),
    PaperCase(
        2, "rarely top $ N", "a",
        "<eos> 0.36, a 0.13, to 0.07, for 0.07, and 0.06",
        "million 0.39, billion 0.36, <eos> 0.05, to 0.04, of 0.03",
    ),
    PaperCase(
        3, "go by the south", "african",
        "africa 0.15, african 0.15, <eos> 0.14, korea 0.08, korean 0.05",
        "<eos> 0.38, and 0.08, of 0.06, or 0.05, <unk> 0.04",
    ),
    PaperCase(
        4, "would succeed and", "ual",
        "the 0.14, that 0.07, ual 0.07, <unk> 0.03, it 0.02",
        "the 0.10, <unk> 0.06, that 0.05, in 0.02, it 0.02",
    ),
    PaperCase(
        5, "for sabotage and", "conspiracy",
        "<unk> 0.47, violence 0.11, conspiracy 0.03, incest 0.03, civil 0.03",
        "<unk> 0.41, the 0.03, a 0.02, other 0.02, in 0.01",
    ),
    PaperCase(
        6, "that huge government", "subsidies",
        "subsidies 0.15, spending 0.08, officials 0.04, costs 0.04, <unk> 0.03",
        "officials 0.04, figures 0.03, efforts 0.03, <unk> 0.03, costs 0.03",
    ),
)  # fmt: skip


def find_cases(ids: npt.NDArray[np.int64], words: Sequence[str]) -> dict[PaperCase, int | None]:
    """Return the step of each case in `ids`, or None where the text does not contain it."""
    index = {word: i for i, word in enumerate(words)}
    found: dict[PaperCase, int | None] = {}
    for case in PAPER_CASES:
        phrase = [index.get(word, -1) for word in (*case.key.split(), case.reference)]  # -1 matches nothing
        ends = phrase_ends(ids, phrase)
        found[case] = int(ends[0]) - 1 if len(ends) else None
    return found

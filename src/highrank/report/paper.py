"""Numbers that the paper and its successors print: the only ones in the report that are typed by hand.

Perplexities of tables 1, 2 and 5 that belong to one recipe are in `Recipe.paper`, the others are here. Tables
are numbered in the order of their captions in the paper's source.
"""

from typing import NamedTuple


class Pair(NamedTuple):
    valid: float
    test: float


# Tables 1 and 2, by recipe and state. The numbers of AWD-LSTM there are from Merity et al. and Krause et al.
SINGLE_MODELS = {
    ("ptb-softmax", "trained"): Pair(60.7, 58.8),
    ("ptb-softmax", "finetuned"): Pair(60.0, 57.3),
    ("ptb-softmax", "cache"): Pair(53.9, 52.8),
    ("ptb-softmax", "dynamic"): Pair(51.6, 51.1),
    ("ptb-mos", "dynamic"): Pair(48.33, 47.69),
    ("wt2-softmax", "trained"): Pair(69.1, 66.0),
    ("wt2-softmax", "finetuned"): Pair(68.6, 65.8),
    ("wt2-softmax", "cache"): Pair(53.8, 52.0),
    ("wt2-softmax", "dynamic"): Pair(46.4, 44.3),
    ("wt2-mos", "dynamic"): Pair(42.41, 40.68),
}


class Published(NamedTuple):
    test: float
    source: str


# The best published test perplexity of a single AWD-LSTM with a mixture of softmaxes, by recipe and state.
BEST_MIXTURE = {
    ("ptb-mos", "finetuned"): Published(52.00, "DOC + PartialShuffle, Press 2019"),
    ("ptb-mos", "dynamic"): Published(46.01, "adversarial, Wang et al. 2019"),
    ("wt2-mos", "finetuned"): Published(57.85, "DOC + PartialShuffle, Press 2019"),
    ("wt2-mos", "dynamic"): Published(38.65, "adversarial, Wang et al. 2019"),
}

RANK = {"ptb-softmax": Pair(400, 400), "ptb-moc": Pair(280, 280), "ptb-mos": Pair(9981, 9981)}  # table 6
KLD = {"ptb-softmax": Pair(4.869, 4.763), "ptb-moc": Pair(4.955, 4.864), "ptb-mos": Pair(5.400, 5.284)}  # table 11


class Components(NamedTuple):
    rank: int
    test: float


COMPONENTS = {  # table 7: K -> rank and test perplexity on Penn Treebank
    3: Components(6467, 58.62),
    5: Components(8930, 57.36),
    10: Components(9973, 56.33),
    15: Components(9981, 55.97),
    20: Components(9981, 56.17),
}

PARAMETERS = {  # tables 3 and 12, in millions; their scores are in `Recipe.paper`
    "1b-softmax": 119,
    "1b-mos": 113,
    "text8-softmax": 8.42,
    "text8-mos7": 8.45,
    "text8-mos7-equal": 8.45,
    "text8-mos10": 8.43,
    "text8-mos10-equal": 8.43,
}

SLOWDOWN = {  # table 13: K -> column -> time over the softmax's
    5: {"PTB/bs": 1.2, "WT2/bs": 1.3},
    7: {"1B/bs": 3.8},
    10: {"PTB/bs": 1.6, "WT2/bs": 1.9},
    15: {"PTB/bs": 1.9, "PTB/best-1": 2.8, "WT2/bs": 2.5, "WT2/best-1": 6.4},
}

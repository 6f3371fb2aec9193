"""Analysis of what models can express and what they predict: rank, spectrum and KLD, diagnosis, and comparison.

Rank of the log-probabilities (`highrank analyze`):

    matrix.py        rank, spectrum, pairwise KLD and perplexity of any model on a text, in one pass
    softmax.py       the same from the two factors of a softmax, for any vocabulary
    hf.py            the same for Hugging Face models
    rank.py, factors.py, kld.py    the numerical methods
    record.py        the results, as they are written

The output layer (`highrank doctor`):

    diagnosis.py     the whole diagnosis
    output_layer.py, gradient.py    the weights, and how much of the loss gradient passes
    argmax.py, hull.py    the tokens that can never win, and the search for proofs

Two models step by step (`highrank compare`):

    compare.py       the whole comparison
    reading.py, prediction.py    the losses of a text, and the distribution at one step
    context.py, groups.py, paper_cases.py    what is shown around a step, gains by group, the paper's examples

The paper's theory (`highrank theory`, `highrank quickstart`): finite_language/
"""

from highrank.analysis.matrix import analyze as analyze
from highrank.analysis.matrix import carrying_state as carrying_state
from highrank.analysis.record import Analysis as Analysis
from highrank.analysis.softmax import analyze_softmax as analyze_softmax

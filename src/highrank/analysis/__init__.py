"""Rank, spectrum and pairwise KLD of log-probability matrices, for this project's models and anyone's."""

from highrank.analysis.matrix import analyze as analyze
from highrank.analysis.matrix import carrying_state as carrying_state
from highrank.analysis.record import Analysis as Analysis
from highrank.analysis.softmax import analyze_softmax as analyze_softmax

"""Rank, spectrum and pairwise KLD of log-probability matrices, for this project's models and anyone's."""

from highrank.analysis.analyze import Analysis as Analysis
from highrank.analysis.analyze import analyze as analyze
from highrank.analysis.rows import carrying_state as carrying_state

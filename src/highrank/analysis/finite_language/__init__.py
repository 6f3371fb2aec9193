"""Section 2 of the paper on a finite language whose probabilities are all known (`highrank theory`).

models.py    models with free contexts, and how to fit and measure them or a head
bounds.py    ranks, lower bounds and exact models, by algebra
sweep.py     the best KL of each head over D
checks.py    each statement of the paper against the numbers

`check_theory(Setup(...))` runs all of it. docs/theory.md has the proofs.
"""

from highrank.analysis.finite_language.checks import TheoryReport as TheoryReport
from highrank.analysis.finite_language.checks import check_theory as check_theory
from highrank.analysis.finite_language.sweep import Setup as Setup

"""Mistakes that a user can mend. The command line prints one as a single sentence and exits with code 2."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What is wrong and what to do about it, in one sentence."""


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """A clause naming the closest known name, or all of them (or `otherwise`): '; did you mean "ptb-mos"?'."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6 if otherwise else 0.5)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; {otherwise or 'choose one of ' + ', '.join(names)}."

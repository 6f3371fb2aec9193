"""Errors that the user can fix. The command line prints one as a single sentence and exits with code 2."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A bad input, setting or file. The message names the object, the problem and, if it is known, the fix."""


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return a clause that names the closest known name, or lists them all (or `otherwise`): '; did you mean "x"?'."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6 if otherwise else 0.5)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; {otherwise or 'choose one of ' + ', '.join(names)}."

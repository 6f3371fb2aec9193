"""Errors that the user can fix. The command line prints one as a single sentence and exits with code 2."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A bad input, setting or file. The message names the object, the problem and, if it is known, the fix."""


class MissingPackageError(UserError):
    """A package is missing that one of highrank's extras installs."""

    def __init__(self, package: str, extra: str) -> None:
        # There is no release yet: extras are installed from the clone, or from a wheel that was built there.
        super().__init__(
            f"{package} is not installed: run pip install '.[{extra}]' in the clone of highrank, "
            f"or install its wheel with the extra {extra}."
        )


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return the end of an error message: '; did you mean "x"?' if a known name is close.

    If none is close, return `otherwise`, or by default the list of all known names.
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; {otherwise or 'choose one of ' + ', '.join(names)}."

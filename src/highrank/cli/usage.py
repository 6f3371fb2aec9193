"""Mistakes in the command line itself (unknown options, missing arguments, ...), each in one sentence of our own."""

import importlib
import re
import typing
from typing import Any

import typer

from highrank.errors import nearest

# typer carries click with it: the exceptions are beside BadParameter, wherever that is.
_exceptions: Any = importlib.import_module(typer.BadParameter.__module__)
UsageError: Any = _exceptions.UsageError
NoArgsIsHelpError: Any = _exceptions.NoArgsIsHelpError


def explain(error: Any, command: Any, words: list[str]) -> str:
    """What is wrong with `words`, which followed `command`'s name, and what to do about it."""
    path, words = "highrank", list(words)
    while words and words[0] in getattr(command, "commands", {}):
        command, path = command.commands[words[0]], f"{path} {words[0]}"
        del words[0]
    see = f"'{path} --help' shows what there is"
    commands = getattr(command, "commands", {})
    if commands and words and not words[0].startswith("-"):
        return f"'{path}' has no command \"{words[0]}\"{nearest(words[0], commands, see)}"
    names = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    if isinstance(error, _exceptions.NoSuchOption):
        option, known = error.option_name, [*names, "--help"]
        return f"'{path}' has no option \"{option}\"{nearest(option, known, see)}"
    if isinstance(error, _exceptions.BadOptionUsage):
        param = names.get(error.option_name)
        if getattr(param, "is_flag", False):
            return f"{error.option_name} takes no value: write it alone."
        return f"{error.option_name} needs a value: {_number(command, param) or see}."
    if isinstance(error, _exceptions.MissingParameter):
        about = (error.param.help or "").rstrip(".")
        about = f" ({about[0].lower()}{about[1:]})" if about else ""
        return f"{_name(error.param)} is missing{about}: {see}."
    if isinstance(error, _exceptions.BadParameter) and (number := _number(command, error.param)):
        return f"{_name(error.param)} must be {number}, got {_given(error.param, words)}."
    if extra := re.search(r"extra arguments?(?:\(s\))? \((.*)\)", error.format_message()):
        return f"'{path}' does not take \"{extra[1]}\": quote words that belong together; {see}."
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{message[:1].lower()}{message[1:]}: {see}."


def _name(param: Any) -> str:
    return param.opts[0] if param.opts[0].startswith("-") else param.metavar or param.name.upper()


def declared(command: Any, param: Any) -> tuple[tuple[Any, ...], Any]:
    """The types that a parameter takes and what is said of it: (int, None) and Option(...) of an Annotated[...]."""
    found = typing.get_args(
        typing.get_type_hints(command.callback, include_extras=True).get(getattr(param, "name", ""))
    )
    return ((found[0], *typing.get_args(found[0])), found[-1]) if found else ((), None)


def limits(about: Any) -> str:
    """at least 1, at most 5, from 0 to 2^32 - 1; nothing where there are none."""
    low, high = (getattr(about, end, None) for end in ("min", "max"))
    if low is None:
        return "" if high is None else f"at most {_large(high)}"
    return f"at least {low:g}" if high is None else f"from {low:g} to {_large(high)}"


def _number(command: Any, param: Any) -> str:
    """Which numbers a parameter takes, as the command declares it; nothing for what is no number."""
    kinds, about = declared(command, param)
    kind = "a whole number" if int in kinds else "a number" if float in kinds else ""
    within = limits(about) if kind else ""
    return f"{kind} {'of ' * within.startswith('at')}{within}".rstrip()


def _large(number: float) -> str:
    """4294967295 -> 2^32 - 1."""
    power = int(number).bit_length()
    return f"2^{power} - 1" if power > 20 and number == 2**power - 1 else f"{number:g}"


def _given(param: Any, words: list[str]) -> str:
    """The value that was typed, as far as it can be found again."""
    for i in reversed(range(len(words))):
        name, equals, value = words[i].partition("=")
        if name in param.opts:
            return f'"{value}"' if equals else f'"{words[i + 1]}"' if i + 1 < len(words) else "nothing"
    return "something else"

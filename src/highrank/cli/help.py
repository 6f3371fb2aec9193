"""Help worth reading: a value has a name, its limits are said in words, and no type of Python's is shown."""

import re
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from highrank.cli.usage import declared, limits

NAMES = {int: "N", float: "X", Path: "PATH"}  # of values that are not named where they are declared; else NAME


class Verbs(typer.Typer):
    """Commands whose help is laid out by `Verb`."""

    def command(self, name: str | None = None, **options: Any) -> Any:
        return super().command(name, cls=Verb, **options)


class Verb(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            found = param.get_help_record(ctx)
            if found:
                sections[f"{param.param_type_name.title()}s"].append(
                    (self._left(param, found[0]), self._right(param, found[1]))
                )
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def _left(self, param: Any, shown: str) -> str:
        """--batch-size N"""
        if getattr(param, "is_flag", False):
            return shown
        kinds, _ = declared(self, param)
        name = param.metavar or next((NAMES[kind] for kind in kinds if kind in NAMES), param.name.upper())
        if param.param_type_name == "argument":
            return f"{name}..." if param.nargs != 1 else name
        return f"{', '.join(param.opts)} {name}"

    def _right(self, param: Any, shown: str) -> str:
        """... [default: 1; at least 1], for x>=1"""
        _, about = declared(self, param)
        shown = shown.replace("\\[", "[")  # older versions of typer escape it
        return re.sub(r"(?:[^ ;[\]]*<=)?x[<>]=[^ ;[\]]*(?=;|\]$)", limits(about), shown)

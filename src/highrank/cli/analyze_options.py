"""What `highrank analyze` was asked for, shared by its two routes: runs, and models of transformers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from highrank.errors import UserError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class AnalyzeOptions:
    tokens: int | None  # None: all, up to `at_most`
    at_most: int | None
    projection: int | None
    contexts: int
    seed: int
    device: "torch.device"

    def count(self, available: int, what: str) -> int:
        """How many of the tokens of `what` to take."""
        if available < 2:
            raise UserError(f"{what} gives {available} tokens, and an analysis needs at least 2: use more text.")
        if self.tokens is None:
            return min(available, self.at_most or available)
        if self.tokens > available:
            raise UserError(
                f"{what} has {available:,} tokens, fewer than the {self.tokens:,} asked for: use --tokens all."
            )
        return self.tokens


def parse_tokens(text: str | None) -> int | None:
    if text is None or text == "all":
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= 2):
        raise UserError(f'--tokens must be a number of at least 2, or all, got "{text}".')
    return int(text)

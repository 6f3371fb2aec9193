"""`triton.jit` for modules that can also be imported where Triton is missing."""

from collections.abc import Callable
from typing import Any

try:
    import triton
except ImportError:
    triton = None


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `triton.jit(**options)`; where Triton is missing, a decorator that leaves the kernel unchanged."""
    return (lambda kernel: kernel) if triton is None else triton.jit(**options)

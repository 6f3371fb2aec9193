"""highrank: language models that break the softmax bottleneck.

The heads are drop-in modules with an exact loss (`nll`), log-probabilities (`log_prob`) and, for the mixtures, mixture
weights and context vectors (`components`). `load` opens a trained run.
"""

from __future__ import annotations

import importlib

from highrank._version import __version__

TYPE_CHECKING = False  # instead of typing.TYPE_CHECKING: importing typing would take longer than the rest
if TYPE_CHECKING:
    from typing import Any

    from highrank.heads import MoCHead as MoCHead
    from highrank.heads import MoSHead as MoSHead
    from highrank.heads import SoftmaxHead as SoftmaxHead
    from highrank.runs.text_model import generate as generate
    from highrank.runs.text_model import load as load

__all__ = ["MoCHead", "MoSHead", "SoftmaxHead", "__version__", "generate", "load"]

# Imported on first use, so that commands without torch start quickly.
_MODULES = {
    "MoCHead": "highrank.heads",
    "MoSHead": "highrank.heads",
    "SoftmaxHead": "highrank.heads",
    "generate": "highrank.runs.text_model",
    "load": "highrank.runs.text_model",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'highrank' has no attribute {name!r}")

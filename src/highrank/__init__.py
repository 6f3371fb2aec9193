"""highrank: language models that break the softmax bottleneck.

The heads are drop-in modules: each owns its exact loss (`nll`), its distribution (`log_prob`) and, for the mixtures,
its parts (`components`). `load` opens a trained run.
"""

from __future__ import annotations

import importlib

from highrank._version import __version__

TYPE_CHECKING = False  # typing's is the same to a type checker; to import it takes longer than all else here
if TYPE_CHECKING:
    from typing import Any

    from highrank.heads import MoCHead as MoCHead
    from highrank.heads import MoSHead as MoSHead
    from highrank.heads import SoftmaxHead as SoftmaxHead
    from highrank.runs.folder import load as load

__all__ = ["MoCHead", "MoSHead", "SoftmaxHead", "__version__", "load"]

# Imported when first used, so that commands which need no torch do not wait for it.
_HOMES = {
    "MoCHead": "highrank.heads",
    "MoSHead": "highrank.heads",
    "SoftmaxHead": "highrank.heads",
    "load": "highrank.runs.folder",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'highrank' has no attribute {name!r}")

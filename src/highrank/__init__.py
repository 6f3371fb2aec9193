"""highrank: language models that break the softmax bottleneck.

The heads are drop-in modules: each owns its exact loss (`nll`), its distribution (`log_prob`) and, for the mixtures,
its parts (`components`). `load` opens a trained run.
"""

from typing import TYPE_CHECKING, Any

from highrank.heads import MoCHead, MoSHead, SoftmaxHead

if TYPE_CHECKING:
    from highrank.training.run import load as load

__version__ = "0.1.0"
__all__ = ["MoCHead", "MoSHead", "SoftmaxHead", "__version__", "load"]


def __getattr__(name: str) -> Any:
    # `load` brings the file formats with it; heads alone need only torch.
    if name == "load":
        from highrank.training.run import load

        return load
    raise AttributeError(f"module 'highrank' has no attribute {name!r}")

"""highrank: language models that break the softmax bottleneck.

The heads are drop-in modules with an exact loss (`nll`), log-probabilities (`log_prob`) and, for the mixtures, mixture
weights and context vectors (`components`). `train`, `evaluate`, `generate`, `analyze` and `compare` do what the
commands of these names do, `load` opens a trained run, `plot_spectrum` and `plot_curves` draw results (docs/python.md).
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
    from highrank.report.figures.curves import plot_curves as plot_curves
    from highrank.report.figures.spectrum import plot_spectrum as plot_spectrum
    from highrank.runs.analysis import analyze_runs as analyze
    from highrank.runs.comparison import compare_runs as compare
    from highrank.runs.launch import train_recipe as train
    from highrank.runs.run_evaluation import evaluate_run as evaluate
    from highrank.runs.text_model import generate as generate
    from highrank.runs.text_model import load as load

__all__ = [
    "MoCHead",
    "MoSHead",
    "SoftmaxHead",
    "__version__",
    "analyze",
    "compare",
    "evaluate",
    "generate",
    "load",
    "plot_curves",
    "plot_spectrum",
    "train",
]

# Imported on first use, so that commands without torch start quickly.
_SOURCES = {
    "MoCHead": "heads.MoCHead",
    "MoSHead": "heads.MoSHead",
    "SoftmaxHead": "heads.SoftmaxHead",
    "analyze": "runs.analysis.analyze_runs",
    "compare": "runs.comparison.compare_runs",
    "evaluate": "runs.run_evaluation.evaluate_run",
    "generate": "runs.text_model.generate",
    "load": "runs.text_model.load",
    "plot_curves": "report.figures.curves.plot_curves",
    "plot_spectrum": "report.figures.spectrum.plot_spectrum",
    "train": "runs.launch.train_recipe",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _SOURCES:
        raise AttributeError(f"module 'highrank' has no attribute {name!r}")
    module, _, attribute = _SOURCES[name].rpartition(".")
    return getattr(importlib.import_module(f"highrank.{module}"), attribute)

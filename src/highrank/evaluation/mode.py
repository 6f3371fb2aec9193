"""Evaluation mode for functions that may be called in the middle of training."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)
P = ParamSpec("P")
Result = TypeVar("Result")


def in_eval_mode(function: Callable[Concatenate[Model, P], Result]) -> Callable[Concatenate[Model, P], Result]:
    """Run `function(model, ...)` in evaluation mode, then restore every module's previous mode."""

    @wraps(function)
    def wrapped(model: Model, *args: P.args, **kwargs: P.kwargs) -> Result:
        modes = [(module, module.training) for module in model.modules()]  # submodules may differ from the model
        model.eval()
        try:
            return function(model, *args, **kwargs)
        finally:
            for module, training in modes:
                module.training = training

    return wrapped

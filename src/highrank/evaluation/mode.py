"""What looks at a model leaves it as it was: a training loop may go on after it."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)
P = ParamSpec("P")
Result = TypeVar("Result")


def in_eval_mode(function: Callable[Concatenate[Model, P], Result]) -> Callable[Concatenate[Model, P], Result]:
    """`function(model, ...)` with the model in evaluation mode, and back in its own afterwards, whatever happens."""

    @wraps(function)
    def wrapped(model: Model, *args: P.args, **kwargs: P.kwargs) -> Result:
        modes = [(module, module.training) for module in model.modules()]  # parts may be frozen in their own
        model.eval()
        try:
            return function(model, *args, **kwargs)
        finally:
            for module, training in modes:
                module.training = training

    return wrapped

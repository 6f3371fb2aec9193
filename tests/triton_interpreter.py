"""The device of the kernels' tests: the GPU, or the CPU with Triton's interpreter.

Some interpreters cannot run the kernels: that of Triton 3.6 fails with numpy 2.4 on a loop whose length is known at run
time only, and that of 3.9 on a mask made of a vector and a scalar. Their compilers accept both (`ops/test_compile.py`).
"""

import importlib.util
import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def prepare() -> None:
    """Turn the interpreter on where it is needed, and off again where it fails. Triton must not be imported before."""
    if DEVICE == "cuda" or importlib.util.find_spec("triton") is None:
        return
    if os.environ.setdefault("TRITON_INTERPRET", "1") == "1" and not _works():
        os.environ["TRITON_INTERPRET"] = "0"


def _works() -> bool:
    import triton
    import triton.language as tl

    def kernel(x, n, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        for j in range(n):
            inside = (i < n) & (tl.program_id(0) < n)
            tl.store(x + i, tl.load(x + i, mask=inside, other=0) + j, mask=inside)

    x = torch.ones(4)
    try:
        triton.jit(kernel)[(1,)](x, 3, 4)
    except triton.runtime.errors.InterpreterError:
        return False
    return x.tolist() == [4, 4, 4, 1]


prepare()

from highrank.ops import has_kernels  # noqa: E402

needs_kernels = pytest.mark.skipif(
    not has_kernels(torch.device(DEVICE)),
    reason="no Triton, or an interpreter that fails (see triton_interpreter.py)",
)

"""Extra memory of a call."""

import sys
from functools import partial

import pytest
import torch

from highrank.bench.memory import measure_extra_mib
from highrank.bench.peers import forward_backward, implementations, make_inputs

CPU = torch.device("cpu")
MIB = 2**20 // 4  # float32 values
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")


@linux
def test_temporary_memory_is_counted_at_its_peak():
    assert measure_extra_mib(lambda: torch.ones(64 * MIB).add(1).sum(), CPU) == pytest.approx(128, abs=4)


@linux
def test_memory_that_was_in_use_before_is_not_counted():
    x = torch.ones(64 * MIB)
    assert measure_extra_mib(lambda: x.add_(1), CPU) == pytest.approx(0, abs=4)


@linux
def test_the_naive_loss_takes_as_much_as_it_is_expected_to():
    shape = (256, 4, 8, 16_000)
    (naive,) = [one for one in implementations(CPU, torch.float32) if one.name == "naive"]
    call = partial(forward_backward, naive.load(), make_inputs(shape, CPU, torch.float32))
    assert measure_extra_mib(call, CPU) == pytest.approx(256 * 4 * 16_000 * naive.bytes_per_logit / 2**20, rel=0.25)

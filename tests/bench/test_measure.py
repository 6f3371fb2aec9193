"""Time and extra memory of a call."""

import sys
from functools import partial

import pytest
import torch

import measure
from measure import measure_extra_mib, time_blocks
from mos_nll import BYTES_PER_LOGIT
from peers import forward_backward, make_inputs, naive

CPU = torch.device("cpu")
MIB = 2**20 // 4  # float32 values
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")


def test_blocks_count_the_wait_but_not_the_warm_up(monkeypatch):
    now = 0.0
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now)
    blocks = iter([50.0, 4.0, 2.0, 3.0])  # seconds per block, of which the first warms up

    def wait():
        nonlocal now
        now += next(blocks)

    columns = time_blocks(lambda: None, wait, rounds=3, repeat=2, warm_up=1)
    assert (columns["median_ms"], columns["rounds"]) == (1500, 3)  # per call


@linux
def test_temporary_memory_is_counted_at_its_peak_but_not_the_inputs():
    x = torch.ones(64 * MIB)
    assert measure_extra_mib(lambda: x.add(1).add(1).sum(), CPU) == pytest.approx(128, abs=4)


@linux
def test_the_naive_loss_takes_at_most_as_much_as_is_required_to_be_free():
    call = partial(forward_backward, naive, make_inputs((256, 4, 8, 16_000), CPU, torch.float32))
    limit = 256 * 4 * 16_000 * BYTES_PER_LOGIT / 2**20
    assert limit / 2 < measure_extra_mib(call, CPU) < limit

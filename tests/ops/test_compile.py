"""Every kernel compiles for several generations of GPUs, within the shared memory of a block."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
SHARED_KIB = {86: 99, 90: 227, 120: 99}  # shared memory per block by compute capability (CUDA programming guide)
KERNELS = {
    "_mos_nll_forward_kernel", "_mos_nll_mixture_kernel", "_mos_nll_dlogits_kernel", "_mos_nll_target_kernel",
    "_mos_nll_finish_kernel", "_mos_nll_dh_kernel", "_mos_nll_dw_kernel", "_pack_kernel", "_unpack_kernel",
    "_pad_kernel", "_forward_kernel", "_backward_kernel", "_averaged_sgd_kernel",
}  # fmt: skip


@pytest.mark.parametrize("capability", SHARED_KIB)
def test_kernels_compile(capability, tmp_path):
    script = Path(__file__).with_name("compile_only.py")
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    env.pop("TRITON_INTERPRET", None)  # it would bypass the compiler
    done = subprocess.run([sys.executable, script, str(capability)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiled = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, _ in compiled} == KERNELS
    assert max(int(shared) for _, shared in compiled) <= SHARED_KIB[capability] * 1024

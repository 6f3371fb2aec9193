import re
from pathlib import Path

from helpers import PROCESS_TIMEOUT
from ranks import start_torchrun

ROOT = Path(__file__).parents[2]


def test_two_processes_with_half_of_the_words_each_learn_and_have_the_loss_of_one():
    process = start_torchrun("torchrun --nproc-per-node 2 examples/vocab_parallel.py --vocabulary 101", ROOT)
    output, errors = process.communicate(timeout=PROCESS_TIMEOUT)
    assert process.returncode == 0, errors
    divided, whole = zip(*re.findall(r"loss ([\d.]+) .* ([\d.]+) with all", output), strict=True)
    assert divided == whole
    assert float(divided[0]) > 4 > 0.5 > float(divided[-1])

"""Every line of Python that docs/heads.md shows, run in order."""

import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[1] / "docs" / "heads.md"


def test_the_python_works():
    torch.compiler.reset()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    assert len(blocks) == 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    assert names["ours"] == sum(p.numel() for p in names["mixture"].parameters())


def test_an_embedding_as_torch_makes_it_is_too_large_to_tie():
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)[0]
    losses = []
    for source in (block, re.sub(r".*nn\.init\.normal_.*\n", "", block)):
        torch.manual_seed(1)
        exec(compile(source, PAGE.name, "exec"), names := {})
        losses.append(names["loss"].item())
    assert abs(losses[0] - 6.9) < 0.1
    assert abs(losses[1] - 11) < 1

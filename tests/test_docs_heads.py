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

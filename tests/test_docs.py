"""The documents: links lead to files and headings that exist, and Python blocks of docs/heads.md run."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "results" / "README.md"]
HEADS = ROOT / "docs" / "heads.md"


def prose(path):
    """Return the page without its code blocks."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)


def anchors(path):
    """Return the anchors that GitHub makes of the page's headings."""
    titles = re.findall(r"^#+ (.*)$", prose(path), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(path):
    for text, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose(path)):
        assert text, target
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_code_blocks_name_their_language(path):
    fences = re.findall(r"^```(.*)$", path.read_text(), flags=re.M)
    assert len(fences) % 2 == 0
    assert all(fences[::2])


def head_blocks():
    return re.findall(r"```python\n(.*?)```", HEADS.read_text(), flags=re.S)


def test_the_python_of_the_heads_page_runs():
    torch.compiler.reset()
    names: dict = {}
    for block in head_blocks():
        exec(compile(block, HEADS.name, "exec"), names)
    assert names["ours"] == sum(p.numel() for p in names["mixture"].parameters())


def test_tying_needs_a_smaller_embedding_than_torch_makes():
    """docs/heads.md says so: without its nn.init line, the first loss is far above log V."""
    block = head_blocks()[0]
    losses = []
    for source in (block, re.sub(r".*nn\.init\.normal_.*\n", "", block)):
        torch.manual_seed(1)
        exec(compile(source, HEADS.name, "exec"), names := {})
        losses.append(names["loss"].item())
    assert abs(losses[0] - 6.9) < 0.1
    assert abs(losses[1] - 11) < 1

"""The documents' links: every file, picture and heading that they lead to is there, and every block says what it is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / "results" / "README.md"]


def prose(path):
    """The page without its blocks of code, whose brackets and hashes mean other things."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)


def anchors(path):
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.*)$", prose(path), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere_and_pictures_are_described(path):
    for text, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose(path)):
        assert text, target
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_blocks_of_code_say_their_language(path):
    fences = re.findall(r"^```(.*)$", path.read_text(), flags=re.M)
    assert len(fences) % 2 == 0
    assert all(fences[::2])

"""The documents: links lead to files and headings that exist, the site builds, and code blocks run."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import torch

import highrank
from highrank.data.catalog import CORPORA
from highrank.data.pydoc import pydoc_lines
from highrank.recipes import RECIPES

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "results" / "README.md"]
HEADS = ROOT / "docs" / "heads.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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


def test_the_page_on_installation_lists_every_extra_for_users():
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), flags=re.M)
    assert {*listed} == PROJECT["optional-dependencies"].keys() - {"dev", "docs"}


def test_the_site_builds_without_a_warning(tmp_path):
    """Build the site as `make docs` does, in another folder."""
    for name in ("mkdocs.yml", "mkdocs_extension.py"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(ROOT / "src")
    recipe = (ROOT / "Makefile").read_text().partition("\ndocs:\n")[2].partition("\n\n")[0]
    commands = [line.partition(".venv/bin/")[2] for line in recipe.splitlines() if ".venv/bin/" in line]
    assert [command.split()[0] for command in commands] == ["typer", "python"]
    for command in commands:
        program, *arguments = command.split()
        subprocess.run([Path(sys.executable).with_name(program), *arguments], cwd=tmp_path, check=True)
    assert "highrank data get" in (tmp_path / "site" / "commands" / "index.html").read_text()
    assert "in_features" in (tmp_path / "site" / "api" / "index.html").read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_code_blocks_name_their_language(path):
    fences = re.findall(r"^```(.*)$", path.read_text(), flags=re.M)
    assert len(fences) % 2 == 0
    assert all(fences[::2])


def test_extras_exist_and_are_installed_from_the_clone_until_there_is_a_release():
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
    text = "".join(path.read_text() for path in (*PAGES, *sources))
    targets = re.findall(r"'(\.|highrank)\[([\w,]+)\]'", text)
    named = re.findall(r'MissingPackageError\("[^"]+", "(\w+)"\)', text)
    assert {folder for folder, _ in targets} == {"."}
    assert {extra for _, extras in targets for extra in extras.split(",")} | {*named} <= {
        *PROJECT["optional-dependencies"]
    }


def test_commands_that_train_at_the_papers_size_come_with_a_word_on_the_gpu():
    published = [name for name, corpus in CORPORA.items() if not corpus.embedded]
    for page in PAGES:
        for block in re.findall(r"[^\n]*\n```bash\n.*?```", page.read_text(), flags=re.S):
            recipes = re.findall(r"highrank train ([\w-]+)", block)
            if any(name in RECIPES and RECIPES[name].data.corpus in published for name in recipes):
                assert "GPU" in block, f"{page.name}: {block}"


def test_git_ignores_the_folders_that_the_documented_commands_make():
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    text = "".join(path.read_text() for path in PAGES)
    named = re.findall(r"^highrank .*--(?:out|hf) ([\w-]+)", text, flags=re.M)
    defaults = ["analysis", "doctor", "exports", "quickstart-2", "records", "runs", "theory", "uptrained"]
    folders = {f"{name}/" for name in (*named, *defaults)} - {"results/"}  # maintainers commit those
    done = subprocess.run(["git", "check-ignore", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(done.stdout.split()) == folders


def head_blocks():
    return re.findall(r"```python\n(.*?)```", HEADS.read_text(), flags=re.S)


def test_the_python_of_the_heads_page_runs():
    torch.compiler.reset()
    names: dict = {}
    for block in head_blocks():
        exec(compile(block, HEADS.name, "exec"), names)
    assert names["ours"] == sum(p.numel() for p in names["mixture"].parameters())


def test_the_python_page_has_every_function():
    page = (ROOT / "docs" / "python.md").read_text()
    assert all(name in page for name in highrank.__all__ if name != "__version__")


def train_documented_model(block: str, ids: torch.Tensor) -> tuple[float, float]:
    """Train the model of a block for 300 steps; return the mean losses of steps 41 to 50 and 291 to 300."""
    torch.manual_seed(1)
    exec(compile(block, HEADS.name, "exec"), names := {})
    model = names["model"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(300):
        windows = ids[torch.randint(len(ids) - 32, (16, 1)) + torch.arange(33)]
        loss = model(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[40:50]) / 10, sum(losses[290:]) / 10


@pytest.mark.slow
def test_the_documented_model_learns_as_fast_as_with_a_softmax():
    words = list(chain.from_iterable(pydoc_lines()[0]["train"]))
    index = {word: i for i, (word, _) in enumerate(Counter(words).most_common(1000))}
    ids = torch.tensor([index.get(word, 0) for word in words])
    block = head_blocks()[0]
    early, late = train_documented_model(block, ids)
    softmax_early, softmax_late = train_documented_model(block.replace("MoSHead", "SoftmaxHead"), ids)
    assert early < softmax_early
    assert late < softmax_late
    assert late < 4.5  # far below 5.1, the entropy of the words' frequencies, where a mixture with scale=1.0 stalls

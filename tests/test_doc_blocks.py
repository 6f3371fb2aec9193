"""Run the code blocks of docs/, each page in a folder of its own, with toy models and a toy corpus.

A block that cannot run here has a line `<!-- not run: REASON -->` before it.
"""

import contextlib
import io
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from helpers import SMALL_DIALOG, highrank, write_toy_corpus, write_toy_dialogs
from hf_models import TEXT, save_model

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```", re.S | re.M)
OUTPUT = {"text", "json", "console"}
REASONS = {"downloads", "needs several GPUs", "needs a task of lm-eval", "serves until Ctrl-C", "takes minutes"}
SMALL = "model.embed_dim=6 model.hidden_sizes=10,6 train.batch_size=4 train.bptt=10 train.max_over_bptt=5"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def code_blocks(path):
    """Return (language, code) of the blocks of a page that run here."""
    found = list(BLOCK.finditer(path.read_text()))
    assert {block["reason"] for block in found} <= {None, *REASONS}
    return [(b["language"], b["code"]) for b in found if b["reason"] is None and b["language"] not in OUTPUT]


PAGES = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md")) if code_blocks(path)}
del PAGES["heads"]  # tests/test_docs.py


def toy_command(line):
    """Return the arguments of a highrank command, changed to finish in a second on the toy corpus."""
    arguments = shlex.split(line, comments=True)[1:]
    for option in ("--data-dir", "--time-budget", "--max-epochs"):
        if option in arguments:
            at = arguments.index(option)
            del arguments[at : at + 2]
    if arguments[0] == "uptrain":
        return [*arguments, "--steps", "1", "--context", "8"]
    if arguments[0] != "train":
        return arguments
    if "--resume" in arguments:  # which keeps the settings
        return [*arguments, "--max-epochs", "2"]
    dialog = arguments[1].startswith("swda")
    settings = SMALL_DIALOG if dialog else f"data.corpus=toy {SMALL}"
    if any(argument.startswith("data.corpus=") for argument in arguments):
        settings = re.sub(r"data.corpus=\S+", "", settings)
    options = [part for setting in settings.split() for part in ("--set", setting)]
    return [*arguments[:2], *options, *arguments[2:], "--max-epochs", "1"]


def run_bash(code, folder):
    """Run the highrank commands of a block, and check that the extras it installs exist."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("highrank "):
            highrank(*toy_command(line), cwd=folder)
        elif line.startswith("pip install "):
            assert set(re.search(r"\[(.*)\]", line)[1].split(",")) <= EXTRAS.keys()
        else:
            assert not line or line.startswith("#"), f"{line}: mark the block as not run"


def fill_folder(folder, code):
    """Make what the code of a page takes for granted: text, dialogs, Hugging Face models and trained runs."""
    write_toy_corpus(folder / "toy")
    for path in (folder / "toy").iterdir():
        path.write_text(path.read_text() + "the cat is not in the <unk> red\n" * 3)
    for name in ("book.txt", "letters.txt"):
        shutil.copy(folder / "toy" / "train.txt", folder / name)
    (folder / "my.txt").write_text(TEXT)
    shutil.copytree(folder / "toy", folder / "corpora" / "penn")
    for name in ("my-text", "my-folder"):
        if f"--out {name}" not in code:
            shutil.copytree(folder / "toy", folder / name)
    write_toy_dialogs(folder / "my-dialogs")
    write_toy_dialogs(folder / "dialogs")
    (folder / "results").symlink_to(ROOT / "results")
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "results.md", folder / "docs")
    if '"gpt2"' in code or " gpt2 " in code:
        save_model(folder / "gpt2")
    trained = set(re.findall(r"^highrank train (\S+)", code, flags=re.M))
    for recipe in sorted(set(re.findall(r"\bruns/([\w-]+)", code)) - trained):
        if f"--out runs/{recipe}" not in code:
            highrank(*toy_command(f"highrank train {recipe}"), cwd=folder)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))  # for highrank chat
    blocks = code_blocks(PAGES[page])
    fill_folder(tmp_path, "\n".join(code for _, code in blocks))
    names: dict = {}
    for language, code in blocks:
        if language == "bash":
            run_bash(code, tmp_path)
        else:
            with contextlib.chdir(tmp_path):
                exec(compile(code, PAGES[page].name, "exec"), names)

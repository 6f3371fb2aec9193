"""The examples that train models, at toy size."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from hf_models import TEXT, save_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.parametrize("components", [1, 3])
def test_nanogpt_learns_with_either_head(tmp_path, monkeypatch, capsys, components):
    text = tmp_path / "input.txt"
    text.write_text("the cat sees the dog. a dog hears the bird. " * 40)
    sizes = ["--steps", "40", "--batch-size", "8", "--context", "16", "--width", "32", "--layers", "1", "--lr", "0.01"]
    run_example(monkeypatch, "nanogpt_mos.py", text, "--components", components, *sizes)
    losses = [float(loss) for loss in re.findall(r"valid ([\d.]+)", capsys.readouterr().out)]
    assert len(losses) == 10
    assert losses[-1] < 1.5 < losses[0]


@pytest.mark.filterwarnings("ignore")  # of transformers and accelerate
def test_a_converted_model_is_finetuned_and_saved(tmp_path, monkeypatch, capsys):
    from transformers import AutoModelForCausalLM

    pytest.importorskip("accelerate")
    model = save_model(tmp_path / "llama")
    (tmp_path / "text.txt").write_text(f"{TEXT} " * 8)
    options = ["--components", "2", "--steps", "20", "--context", "16", "--batch-size", "4", "--lr", "0.01"]
    run_example(
        monkeypatch, "convert_and_finetune.py", model, tmp_path / "text.txt", "--out", tmp_path / "out", *options
    )
    before, after = re.search(r"([\d.]+) before, ([\d.]+) after", capsys.readouterr().out).groups()
    assert float(after) < float(before) - 0.5
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert loaded.lm_head.n_components == 2

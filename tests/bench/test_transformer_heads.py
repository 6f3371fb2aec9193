"""The experiment on transformers, at a size that takes seconds."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from helpers import write_toy_corpus

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "transformer_heads.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("transformer_heads", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_softmax_and_its_mixtures_are_trained_and_tabulated(script, tmp_path, monkeypatch):
    corpus = str(write_toy_corpus(tmp_path / "toy"))
    common = ["--out", tmp_path / "out", "--device", "cpu", "--layers", 2]
    monkeypatch.setattr(script, "BATCH", 2)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["transformer_heads.py", *map(str, [*arguments, *common])])
        script.main()

    run("time", "--corpora", corpus, "--dims", 64, "--timed", 1)
    train = ("train", "--corpus", corpus, "--dim", 64, "--steps", 4, "--analyzed", 40)
    run(*train, "--head", "softmax", "--dropout", 0.2)
    run(*train, "--head", "mos", "--equal", "time")
    run(*train, "--head", "converted")
    run("table")
    run("draw")
    records = {r["head"]: r for r in script.read_records(tmp_path / "out")}
    assert (tmp_path / "out" / "transformer_heads.csv").read_text().count("\n") == 4
    assert {r["dropout"] for r in records.values()} == {0.2}
    assert records["softmax"]["steps"] == records["converted"]["steps"] == 4
    times = json.loads((tmp_path / "out" / "step_ms.json").read_text())
    assert records["mos"]["steps"] == round(4 * times["toy-64-softmax"] / times["toy-64-mos"])
    assert records["mos"]["reach"] > 0


@pytest.mark.parametrize("dim", [128, 256])
def test_all_heads_have_the_same_number_of_parameters(script, dim):
    def parameters(head):
        with torch.device("meta"):
            model = script.Transformer(head, 1000, dim, 4, 0.0)
            if head == "converted":
                model.convert()
        return sum(p.numel() for p in model.parameters())

    softmax = parameters("softmax")
    for head in ("moc", "mos", "converted"):
        assert parameters(head) == pytest.approx(softmax, rel=5e-3)


def test_a_converted_model_starts_as_the_softmax_it_was(script):
    model = script.Transformer("converted", 50, 64, 2, 0.0).eval()
    words = torch.randint(50, (2, 10))
    with torch.no_grad():
        before = model.head.log_prob(model.hidden(words))
        model.convert()
        after = model.head.log_prob(model.hidden(words))
    torch.testing.assert_close(after, before)


def test_the_loss_counts_every_token_once(script, tmp_path):
    class Constant(torch.nn.Module):
        """A head whose loss of a token is its id."""

        def forward(self, hidden, targets):
            return targets.float()

    trainer = script.Trainer.__new__(script.Trainer)
    trainer.device = torch.device("cpu")
    trainer.model = script.Transformer("softmax", 50, 64, 1, 0.0)
    trainer.model.head = Constant()
    ids = torch.randint(50, (4 * script.WINDOW + 1,))
    trainer.data = script.Data({"valid": ids}, 50)
    assert trainer.loss("valid") == pytest.approx(ids[1:].float().mean().item())

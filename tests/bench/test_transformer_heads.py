"""The experiment on transformers, at a size that takes seconds."""

import importlib.util
import json
import sys
from argparse import Namespace
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
    run(*train, "--head", "residual")
    run(*train, "--head", "converted")
    run("table")
    run("draw")
    records = {r["head"]: r for r in script.read_records(tmp_path / "out")}
    assert (tmp_path / "out" / "transformer_heads.csv").read_text().count("\n") == 5
    assert {r["dropout"] for r in records.values()} == {0.2}
    assert {records[head]["steps"] for head in ("softmax", "residual", "converted")} == {4}
    assert records["residual"]["parameters"] == records["converted"]["parameters"]
    times = json.loads((tmp_path / "out" / "step_ms.json").read_text())
    assert records["mos"]["steps"] == max(1, round(4 * times["toy-64-softmax"] / times["toy-64-mos"]))
    assert records["mos"]["reach"] > 0


def test_all_trains_every_head_at_the_best_dropout_and_repeats_nothing(script, tmp_path, monkeypatch):
    corpus = str(write_toy_corpus(tmp_path / "toy"))
    monkeypatch.setattr(script, "BATCH", 2)
    monkeypatch.setattr(script, "DROPOUTS", (0.0, 0.5))
    trained = []

    def run(command, check):  # instead of a process
        trained.append(command)
        monkeypatch.setattr(sys, "argv", command[1:])
        script.main()

    monkeypatch.setattr(script, "subprocess", Namespace(run=run))
    options = ["--corpora", corpus, "--dims", 64, "--layers", 2, "--steps", 2, "--analyzed", 40, "--timed", 1]
    command = ["transformer_heads.py", "all", *options, "--jobs", 1, "--device", "cpu", "--out", tmp_path / "out"]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", list(map(str, command)))
        script.main()
    records = script.read_records(tmp_path / "out")
    best = script.best_dropout(records, "toy", 64)
    runs = {(r["head"], r["equal"], r["seed"]) for r in records if r["dropout"] == best}
    mixtures = [head for head in script.HEADS if head != "softmax"]
    expected = {(head, equal, seed) for head in mixtures for equal in ("steps", "time") for seed in (1, 2)}
    assert runs == expected | {("softmax", "steps", 1), ("softmax", "steps", 2)}
    assert len(trained) == len(records) == 27


@pytest.mark.parametrize("dim", [128, 256])
def test_all_heads_have_the_same_number_of_parameters(script, dim):
    def parameters(head):
        with torch.device("meta"):
            model = script.Transformer(head, 1000, dim, 4, 0.0)
            if head.startswith("converted"):
                model.convert()
        return sum(p.numel() for p in model.parameters())

    softmax = parameters("softmax")
    for head in script.HEADS:
        assert parameters(head) == pytest.approx(softmax, rel=5e-3)


def record(head="softmax", dropout=0.1, seed=1, valid_loss=5.0, **others):
    names = ("n_components", "layers", "steps", "step_ms", "test_loss", "rank", "effective_rank", "gradient_share")
    same = {"corpus": "penn", "vocabulary": 10_000, "dim": 128, "equal": "steps", "reach": None}
    curve = [{"step": 1, "valid_loss": valid_loss}, {"step": 2, "valid_loss": valid_loss}]
    run = {"head": head, "dropout": dropout, "seed": seed, "valid_loss": valid_loss, "curve": curve}
    return {**same, **dict.fromkeys(names, 1), **run, **others}


def test_a_table_keeps_the_rows_of_an_earlier_one(script, tmp_path):
    def tabulate(*records):
        for r in records:
            (tmp_path / f"{script.run_name(r)}.json").write_text(json.dumps(r))
        script.write_table(Namespace(out=tmp_path))
        for path in tmp_path.glob("*.json"):
            path.unlink()
        return script.read_records(tmp_path)

    earlier = tabulate(record(), record("mos", rank=None, step_ms=0.1 + 0.2))
    assert [(r["head"], r["rank"], r["step_ms"]) for r in earlier] == [("mos", None, 0.1 + 0.2), ("softmax", 1, 1)]
    later = tabulate(record("mos", valid_loss=4.0), record("residual"))
    assert [(r["head"], r["valid_loss"]) for r in later] == [("mos", 4.0), ("residual", 5.0), ("softmax", 5.0)]


def test_heads_are_compared_at_the_dropout_that_is_best_for_the_softmax(script):
    softmax = [record(valid_loss=5.2), record(dropout=0.0, valid_loss=5.1), record(seed=2, valid_loss=5.0)]
    mos = [record("mos", valid_loss=4.8), record("mos", dropout=0.0, valid_loss=4.9)]
    runs = script.at_best_dropout([*softmax, *mos])["penn", 128]
    assert [r["valid_loss"] for r in runs["softmax", "steps"]] == [5.1]  # the first seed decides
    assert [r["valid_loss"] for r in runs["mos", "steps"]] == [4.9]


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

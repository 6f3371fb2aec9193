"""`highrank export` and `highrank import`."""

import shlex

import pytest

from helpers import fails, highrank
from highrank.runs import checkpoint as checkpoints


def command_in(stdout):
    """Return the arguments of the command that the output suggests."""
    return shlex.split(next(line for line in stdout.splitlines() if line.startswith("  highrank")))[1:]


@pytest.mark.parametrize("averages_only", [False, True])
def test_the_suggested_commands_import_and_resume(place, trained, averages_only):
    trained.rename(place / "a run")
    options = ["--averages-only"] if averages_only else []
    done = highrank("export", "a run", *options, cwd=place)
    assert (place / "exports" / "a run").is_dir()
    done = highrank(*command_in(done.stdout), cwd=place)
    highrank(*command_in(done.stdout), "--max-epochs", 2, cwd=place)
    assert checkpoints.read(place / "runs" / "a run").state.epoch == 2


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("export run --out x --max-shard-size big", "big"),
        ("export run --out x --dtype int8", "int8"),
        ("export toy --out x", "toy"),
        ("import toy --out x", "toy"),
        ("import run --out x", "highrank export"),
    ],
)
def test_a_wrong_argument_is_an_error(place, trained, arguments, name):
    assert name in fails(*arguments.split(), cwd=place)
    assert not (place / "x").exists()


def test_a_run_becomes_a_model_of_transformers(place, trained):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from highrank import load

    highrank("export", "run", "--hf", "model", cwd=place)
    loaded = load(trained)
    ours = loaded.model
    model = AutoModelForCausalLM.from_pretrained(place / "model")
    ids = AutoTokenizer.from_pretrained(place / "model")("the cat\n", return_tensors="pt")["input_ids"]
    assert [loaded.words[i] for i in ids[0]] == ["the", "cat", "<eos>"]
    expected, _ = ours.log_prob(ids.t(), ours.initial_state(1))
    assert model(ids).logits[0].equal(expected[:, 0])
    assert "Perplexity" in (place / "model" / "README.md").read_text()
    assert "model" in fails("export", "run", "--hf", "model", cwd=place)


def test_a_dialog_model_does_not_become_a_model_of_transformers(tmp_path, trained_dialog):
    assert "dialog" in fails("export", "talk", "--hf", "model", cwd=tmp_path)
    assert not (tmp_path / "model").exists()

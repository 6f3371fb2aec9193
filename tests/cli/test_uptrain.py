import json

import pytest

from helpers import fails, highrank
from hf_models import TEXT, save_model


def write_text(folder):
    folder.mkdir()
    for split in ("train", "valid"):
        (folder / f"{split}.txt").write_text(TEXT)


SMALL = ["--components", 2, "--batch-size", 2, "--context", 8, "--lr", 0.01]


def test_a_mixture_is_trained_beside_its_softmax(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    save_model(tmp_path / "llama")
    write_text(tmp_path / "text")
    done = highrank("uptrain", "llama", "--text", "text", *SMALL, "--steps", 10, cwd=tmp_path)
    assert "mixture of 2" in done.stdout
    record = json.loads((tmp_path / "uptrained" / "uptrain.json").read_text())
    assert record["steps"] == 10
    assert record["mixture"]["step"] == record["softmax"]["step"]
    assert record["mixture"]["valid_nll"][-1] < record["mixture"]["valid_nll"][0]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "uptrained")
    assert model.lm_head.n_components == 2
    assert model.lm_head.shift.weight.any()
    AutoTokenizer.from_pretrained(tmp_path / "uptrained")
    assert (tmp_path / "uptrained" / "uptrain.png").exists()


def test_one_component_is_a_control(tmp_path):
    save_model(tmp_path / "llama")
    write_text(tmp_path / "text")
    one = ["--components", 1, "--batch-size", 2, "--context", 8]
    highrank("uptrain", "llama", "--text", "text", *one, "--steps", 2, cwd=tmp_path)
    record = json.loads((tmp_path / "uptrained" / "uptrain.json").read_text())
    assert record["mixture"]["valid_nll"][0] == pytest.approx(record["softmax"]["valid_nll"][0])
    assert record["mixture"]["parameters"] > record["softmax"]["parameters"]


def test_a_time_budget_sets_the_number_of_steps(tmp_path):
    save_model(tmp_path / "llama")
    write_text(tmp_path / "text")
    highrank("uptrain", "llama", "--text", "text", *SMALL, "--time-budget", "0.5s", "--out", "out", cwd=tmp_path)
    assert json.loads((tmp_path / "out" / "uptrain.json").read_text())["steps"] >= 1


@pytest.mark.parametrize(("option", "value"), [("--lr", -1), ("--seed", 2**64)])
def test_an_option_out_of_range_is_an_error(tmp_path, option, value):
    assert option in fails("uptrain", "llama", "--text", "text", option, value, cwd=tmp_path)


def test_wrong_text_or_context_is_an_error(tmp_path):
    save_model(tmp_path / "llama")
    assert "train.txt" in fails("uptrain", "llama", "--text", "nowhere", cwd=tmp_path)
    write_text(tmp_path / "text")
    assert "16" in fails("uptrain", "llama", "--text", "text", "--context", 17, cwd=tmp_path)
    for content in (b"w1 w2", b"\xff\xfe\x00"):  # too short, not UTF-8
        (tmp_path / "text" / "valid.txt").write_bytes(content)
        assert "valid.txt" in fails("uptrain", "llama", "--text", "text", *SMALL, cwd=tmp_path)
    assert not (tmp_path / "uptrained").exists()

import pytest
import torch
from transformers import AutoModelForCausalLM

import highrank.runs.uptrain
from hf_models import TEXT, save_model
from highrank.hf.uptrain import UptrainSettings
from highrank.runs.uptrain import uptrain_both


def test_the_mixture_is_kept_if_the_softmax_is_interrupted(tmp_path, monkeypatch):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text(TEXT)
    train = highrank.runs.uptrain.uptrain

    def interrupted(model, *arguments):
        if type(model).__name__ == "LlamaForCausalLM":
            raise KeyboardInterrupt
        return train(model, *arguments)

    monkeypatch.setattr(highrank.runs.uptrain, "uptrain", interrupted)
    settings = UptrainSettings(n_components=2, batch_size=2, context=8)
    with pytest.raises(KeyboardInterrupt):
        uptrain_both(
            save_model(tmp_path / "llama"),
            tmp_path,
            tmp_path / "out",
            settings,
            torch.device("cpu"),
            seconds=1,
            steps=3,
        )
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").lm_head.shift.weight.any()

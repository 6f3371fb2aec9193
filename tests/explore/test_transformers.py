"""Exploring a Hugging Face causal language model."""

import pytest
import torch

from helpers import CPU
from hf_models import save_model
from highrank.errors import UserError
from highrank.explore.explorer import Explorer
from highrank.explore.model import open_model

TEXT = "w1 w5 w9 w2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hf") / "llama"


@pytest.fixture(scope="module")
def explorer(folder):
    save_model(folder)
    return Explorer(open_model(folder, CPU))


@torch.no_grad()
def truth(model, ids):
    return model.model(torch.tensor([ids])).logits[0].log_softmax(-1)


def test_changed_texts_get_the_scores_of_the_whole_text(explorer):
    model = explorer.model
    for text in (TEXT, TEXT + " w7", "w1 w5 w3 w2", "w1"):
        reading = explorer.read(text, 0)
        ids = [model.start, *(token.id for token in reading.tokens)]
        expected = [-row[i].item() for row, i in zip(truth(model, ids), ids[1:], strict=False)]
        assert [score.nll for score in reading.scores] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("family", "options"), [("mistral", {"sliding_window": 4}), ("mamba", {})])
def test_a_text_can_be_edited_where_the_cache_cannot_be_shortened(tmp_path, family, options):
    save_model(tmp_path, family, torch.float32, **options)
    explorer = Explorer(open_model(tmp_path, CPU))
    explorer.read(f"{TEXT} w7 w8", 0)
    changed = explorer.read(f"{TEXT} w3 w8", 0)
    fresh = Explorer(open_model(tmp_path, CPU)).read(f"{TEXT} w3 w8", 0)
    assert [s.nll for s in changed.scores] == pytest.approx([s.nll for s in fresh.scores], abs=1e-4)


def test_an_error_in_the_model_does_not_change_later_predictions(explorer, folder):
    explorer.read(TEXT, 0)
    hook = explorer.model.model.model.layers[-1].register_forward_pre_hook(fail)
    with pytest.raises(torch.OutOfMemoryError):
        explorer.read("w1 w5 w3 w2 w4", 0)
    hook.remove()
    fresh = Explorer(open_model(folder, CPU)).read(f"{TEXT} w7", 0)
    again = explorer.read(f"{TEXT} w7", 0)
    assert [score.nll for score in again.scores] == pytest.approx([score.nll for score in fresh.scores], abs=1e-4)


def fail(*arguments):
    raise torch.OutOfMemoryError


def test_tokens_know_their_place_in_the_text(explorer):
    assert [TEXT[token.start : token.end] for token in explorer.model.tokens(TEXT)] == TEXT.split()


def test_a_text_longer_than_the_context_is_an_error(explorer):
    with pytest.raises(UserError):
        explorer.read("w1 " * 17, 0)


def test_it_continues_a_text(explorer):
    words = explorer.sample(TEXT, 3, temperature=0)
    reading = explorer.read(TEXT + "".join(word.text for word in words), 0)
    assert [score.rank for score in reading.scores[4:]] == [1, 1, 1]


def test_a_converted_model_has_components(folder, explorer, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import highrank.hf

    model = highrank.hf.convert(AutoModelForCausalLM.from_pretrained(folder), n_components=3)
    for parameter in model.get_output_embeddings().parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    converted = Explorer(open_model(tmp_path, CPU))
    for text in (TEXT, "w1 w5 w3"):
        reading = converted.read(text, 0)
        ids = [converted.model.start, *(token.id for token in reading.tokens)]
        expected = [-row[i].item() for row, i in zip(truth(converted.model, ids), ids[1:], strict=False)]
        assert [score.nll for score in reading.scores] == pytest.approx(expected, abs=1e-3)
        assert all(len(score.responsibilities) == 3 for score in reading.scores)

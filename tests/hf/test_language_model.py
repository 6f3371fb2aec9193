"""Exported runs as Hugging Face models."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import highrank.hf  # noqa: F401
from helpers import TOY, changed
from highrank.data.corpus import read_corpus
from highrank.data.tokenizer import TextCodec, encode_lines, token_texts, train_tokenizer
from highrank.errors import UserError
from highrank.evaluation.generate import continue_by_beam, generate
from highrank.evaluation.perplexity import evaluate
from highrank.hf.language_model import from_language_model, make_tokenizer
from highrank.models import build_model

HEADS = ["softmax", "moc", "mos"]


def make(corpus, head="mos", **model):
    """Return a model and its twin for transformers, which share their weights."""
    if head == "softmax":
        model["embed_dim"] = TOY.model.hidden_sizes[-1]  # a tied softmax needs it
    recipe = changed(TOY, {"head": head, **model})
    torch.manual_seed(3)
    ours = build_model(recipe.model, corpus.vocab_size).eval()
    for parameter in ours.parameters():
        parameter.data.mul_(3)
    return ours, from_language_model(ours, recipe.model, corpus.words)


@pytest.fixture
def pair(toy_corpus):
    return make(toy_corpus)


@pytest.fixture
def ids(toy_corpus):
    return toy_corpus.splits["valid"][:24]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_an_exported_model_is_loaded_bit_for_bit(tmp_path, toy_corpus, ids, head, tied):
    ours, theirs = make(toy_corpus, head, tied=tied)
    theirs.save_pretrained(tmp_path)
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=False, output_loading_info=True)
    assert not any(info.values())
    assert ours.state_dict().keys() == loaded.model.state_dict().keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name]), name
    assert (loaded.model.head.weight is loaded.model.backbone.embedding) == tied
    log_prob, _ = ours.log_prob(ids[:, None], ours.initial_state(1))
    assert torch.equal(loaded(ids[None]).logits[0], log_prob[:, 0])


def test_the_loss_is_that_of_evaluate(pair, ids):
    ours, theirs = pair
    expected = evaluate(ours, ids).nll
    assert theirs(ids[None], labels=ids[None]).loss.item() == pytest.approx(expected, rel=1e-6)
    labels = ids.clone()
    labels[10:] = -100
    expected = evaluate(ours, ids[:10]).nll
    assert theirs(ids[None], labels=labels[None]).loss.item() == pytest.approx(expected, rel=1e-6)


def test_training_builds_no_logits(toy_corpus, ids, monkeypatch):
    _, theirs = make(toy_corpus, dropout_input=0.0, weight_drop=0.0)
    expected = theirs(ids[None], labels=ids[None]).loss
    monkeypatch.setattr(theirs.model.head, "log_prob", None)
    output = theirs.train()(ids[None], labels=ids[None], num_items_in_batch=46)
    output.loss.backward()
    assert output.logits is None
    assert output.loss.item() == pytest.approx(expected.item() / 2, rel=1e-5)


def test_a_text_continues_from_the_state(pair, ids):
    _, theirs = pair
    whole = theirs(ids[None]).logits
    first = theirs(ids[None, :9])
    rest = theirs(ids[None, 9:], state=first.state)
    assert torch.allclose(torch.cat([first.logits, rest.logits], dim=1), whole, atol=1e-6)


def test_generation_continues_from_the_state(pair, ids):
    _, theirs = pair
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": -1}
    expected = theirs.generate(ids[None, :9], **options)[0, 9:]
    made = theirs.generate(ids[None, 5:9], state=theirs(ids[None, :5]).state, **options)[0, 4:]
    assert torch.equal(made, expected)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"top_k": 4}, {"top_p": 0.8, "temperature": 1.3}])
def test_sampling_equals_our_own_under_one_seed(pair, ids, options):
    ours, theirs = pair
    stream = generate(ours, ids[:5], generator=torch.Generator().manual_seed(8), **options)
    expected = [next(stream) for _ in range(20)]
    torch.manual_seed(8)
    defaults = {"do_sample": True, "top_k": 0, "max_new_tokens": 20, "eos_token_id": -1}
    made = theirs.generate(ids[None, :5], **defaults | options)
    assert made[0, 5:].tolist() == expected


def test_beam_search_equals_our_own(pair, ids, toy_corpus):
    ours, theirs = pair
    eos = toy_corpus.words.index("<eos>")
    hypotheses = continue_by_beam(ours, ids[:5], eos=eos, beam_size=4, max_length=8)
    options = {"num_beams": 4, "max_new_tokens": 8, "length_penalty": 0.0, "do_sample": False}
    made = theirs.generate(ids[None, :5], **options)[0, 5:].tolist()
    best = hypotheses.to_lists()[0][0]
    assert made[: len(best)] == best
    assert made[len(best) :] in ([], [eos])


def test_text_padded_on_the_left_is_an_error(pair, ids):
    mask = torch.ones(2, 5, dtype=torch.long)
    mask[0, 0] = 0
    with pytest.raises(UserError):
        pair[1](ids[None, :5].expand(2, 5), attention_mask=mask)


@pytest.mark.parametrize("padding", [0, 4])
def test_generation_from_padded_prompts_is_an_error(pair, ids, padding):
    mask = torch.ones(2, 5, dtype=torch.long)
    mask[0, padding] = 0
    with pytest.raises(UserError):
        pair[1].generate(ids[None, :5].expand(2, 5), attention_mask=mask, max_new_tokens=2)


# --- the tokenizer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["word", "char"])
def test_text_is_read_as_the_corpus_reads_it(tmp_path, toy_folder, level):
    corpus = read_corpus(toy_folder, level)
    make_tokenizer(TextCodec(corpus.words, level)).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = (toy_folder / "valid.txt").read_text()
    assert tokenizer(text)["input_ids"] == corpus.splits["valid"].tolist()
    assert tokenizer.eos_token_id == corpus.words.index("<eos>")


@pytest.mark.parametrize("level", ["word", "char", "bpe"])
def test_a_trained_tokenizer_reads_lines_as_it_did(tmp_path, level):
    lines = ["The cat's hat, a dog", "", "two  dogs"]
    trained = train_tokenizer(lines, level, lower=level == "word", min_count=1, max_vocab=300)
    codec = TextCodec(token_texts(trained), level, trained.to_str())
    make_tokenizer(codec).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "\n".join(lines) + "\n"
    assert tokenizer(text)["input_ids"] == encode_lines(trained, lines).tolist()
    assert len(tokenizer) == len(codec.words)


def test_words_and_characters_are_decoded(toy_corpus):
    assert make_tokenizer(TextCodec(toy_corpus.words, "word")).decode([0, 1, 2]) == " ".join(toy_corpus.words[:3])
    assert make_tokenizer(TextCodec([*"abc"], "char")).decode([2, 0, 1]) == "cab"


def test_unknown_words_need_an_unknown_word_in_the_vocabulary():
    assert make_tokenizer(TextCodec(["a", "<unk>", "<eos>"], "word"))("b a")["input_ids"] == [1, 0]
    with pytest.raises(Exception, match="UNK"):
        make_tokenizer(TextCodec(["a", "<eos>"], "word"))("b a")


# --- lm-eval --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_lm_eval_scores_as_evaluate_does(tmp_path, pair, toy_corpus, toy_folder, monkeypatch):
    pytest.importorskip("lm_eval")
    import datasets
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    ours, theirs = pair
    theirs.save_pretrained(tmp_path / "model")
    make_tokenizer(TextCodec(toy_corpus.words, "word")).save_pretrained(tmp_path / "model")
    text = (toy_folder / "test.txt").read_text().rstrip("\n")  # lm-eval drops the last line end
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": text}) + "\n")
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "toy.yaml").write_text(
        f"""
task: toy
dataset_path: json
dataset_kwargs: {{data_files: {{test: {tmp_path / "test.jsonl"}}}}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}]
"""
    )
    result = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(tmp_path / "model"), "max_length": 10_000},
        tasks=["toy"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        device="cpu",
        batch_size=1,
        bootstrap_iters=0,
    )
    eos = torch.tensor([toy_corpus.words.index("<eos>")])
    expected = evaluate(ours, torch.cat([eos, toy_corpus.splits["test"][:-1]]))
    words = len(text.split())
    nll = torch.tensor(result["results"]["toy"]["word_perplexity,none"]).log().item() * words
    assert nll == pytest.approx(expected.nll * expected.tokens, rel=1e-5)

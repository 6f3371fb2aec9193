"""Converted models in the training loops of others."""

import warnings

import pytest
import torch
import transformers
from packaging.version import Version

from helpers import TOY
from hf_models import make_model, separate, some_ids, word_tokenizer
from highrank.errors import UserError
from highrank.hf import MIXTURE_MODULES, convert
from highrank.hf.language_model import from_language_model
from highrank.models import build_model

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries under test

LENGTHS = [4, 11, 7, 9, 12, 5, 8, 6]


def examples():
    """Return eight sequences of different lengths, padded to twelve tokens."""
    result = []
    for row, n in zip(some_ids(8, 12).tolist(), LENGTHS, strict=True):
        padding = 12 - n
        result.append(
            {
                "input_ids": row[:n] + [0] * padding,
                "attention_mask": [1] * n + [0] * padding,
                "labels": row[:n] + [-100] * padding,
            }
        )
    return result


@pytest.fixture(autouse=True)
def _new_accelerator():
    """Let every test choose its own precision: accelerate keeps it for the whole process."""
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


QUIET = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "lr_scheduler_type": "constant"}


def test_gradient_accumulation_equals_one_large_batch(tmp_path):
    from transformers import Trainer, TrainingArguments

    def train(batch_size, steps):
        model = separate(convert(make_model(), 3))
        options = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": steps, "max_steps": 2}
        arguments = TrainingArguments(tmp_path, learning_rate=0.1, optim="sgd", **options, **QUIET)
        trainer = Trainer(model, arguments, train_dataset=examples(), eval_dataset=examples())
        trainer.train()
        return model, trainer.evaluate()["eval_loss"]

    large, large_loss = train(8, 1)
    small, small_loss = train(2, 4)
    for name, parameter in large.named_parameters():
        assert torch.allclose(parameter, small.get_parameter(name), atol=1e-6), name
    assert small_loss == pytest.approx(large_loss, rel=1e-6)
    before = separate(convert(make_model(), 3))
    assert not torch.equal(large.lm_head.shift.weight, before.lm_head.shift.weight)


def test_label_smoothing_predicts_the_next_token(tmp_path):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(tmp_path, label_smoothing_factor=0.1, **QUIET)
    losses = [
        Trainer(model, arguments, eval_dataset=examples()).evaluate()["eval_loss"]
        for model in (make_model(), convert(make_model(), 3))
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_trainer_saves_what_can_be_loaded(tmp_path):
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = convert(make_model(), 3)
    options = QUIET | {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    Trainer(model, TrainingArguments(tmp_path, **options), train_dataset=examples()).train()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-1")
    assert torch.equal(loaded.lm_head.shift.weight, model.lm_head.shift.weight)
    assert loaded.lm_head.shift.weight.any()


def test_predictions_of_an_exported_run_are_its_log_probabilities(tmp_path):
    from transformers import Trainer, TrainingArguments

    words = [f"w{i}" for i in range(61)]
    model = from_language_model(build_model(TOY.model, len(words)), TOY.model, words)
    trainer = Trainer(model, TrainingArguments(tmp_path, per_device_eval_batch_size=4, **QUIET))
    predictions = trainer.predict(examples()).predictions  # without the recurrent state
    assert predictions.shape == (8, 12, 61)


def test_mixed_precision_of_accelerate():
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(separate(convert(make_model(), 3)).train())
    ids = some_ids()
    loss = model(ids, labels=ids).loss
    accelerator.backward(loss)
    assert loss.dtype == torch.float32
    assert accelerator.unwrap_model(model).lm_head.shift.weight.grad.abs().max() > 0


# --- PEFT -----------------------------------------------------------------------------------------------------------


def test_an_adapter_trains_beside_the_mixture_and_is_saved(tmp_path):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=MIXTURE_MODULES, task_type="CAUSAL_LM")
    torch.manual_seed(4)
    model = peft.get_peft_model(convert(make_model(), 3), config).train()
    ids = some_ids()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    for _ in range(2):
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    head = model.get_base_model().lm_head
    assert head.shift.weight.abs().max() > 0
    assert head.weight.grad is None
    model.save_pretrained(tmp_path)
    torch.manual_seed(4)  # the W_h are drawn at random, and saved with the adapter
    again = peft.PeftModel.from_pretrained(convert(make_model(), 3), tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(ids).logits, model.eval()(ids).logits)


def test_adapters_on_all_layers_that_leave_the_mixture_frozen_are_a_warning():
    peft = pytest.importorskip("peft")
    ids = some_ids()
    for modules, warns in ((None, True), (MIXTURE_MODULES, False)):
        config = peft.LoraConfig(target_modules="all-linear", modules_to_save=modules, task_type="CAUSAL_LM")
        model = peft.get_peft_model(convert(make_model(), 3), config).train()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                model(ids, labels=ids)
        assert sum("MIXTURE_MODULES" in str(warning.message) for warning in caught) == warns


def test_an_adapter_on_the_mixture_is_an_error():
    peft = pytest.importorskip("peft")
    with pytest.raises(ValueError, match="ResidualMoSHead"):
        peft.get_peft_model(convert(make_model(), 3), peft.LoraConfig(target_modules=["lm_head"]))


def test_a_model_with_an_adapter_is_not_converted():
    peft = pytest.importorskip("peft")
    with pytest.raises(UserError, match="adapters"):
        convert(peft.get_peft_model(make_model(), peft.LoraConfig(target_modules=["lm_head"])))


# --- TRL ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.10"),
    reason="this Trainer also counts the first label of a text, which is not predicted",
)
@pytest.mark.parametrize("by_path", [False, True])
def test_sft_trainer_trains_the_mixture(tmp_path, by_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    rows = [row[:n] for row, n in zip(some_ids(8, 12).tolist(), LENGTHS, strict=True)]
    model = separate(convert(make_model(), 3))
    with torch.no_grad():
        losses = [model(torch.tensor([row]), labels=torch.tensor([row])).loss.item() * (len(row) - 1) for row in rows]
    expected = sum(losses) / sum(len(row) - 1 for row in rows)
    before = model.lm_head.shift.weight.detach().clone()
    arguments = trl.SFTConfig(
        tmp_path, max_steps=1, per_device_train_batch_size=8, learning_rate=0.01, bf16=False, **QUIET
    )
    tokenizer = word_tokenizer(pad_token="w0", eos_token="w1")
    data = Dataset.from_dict({"input_ids": rows})
    if by_path:
        model.save_pretrained(tmp_path / "model")
    given = str(tmp_path / "model") if by_path else model
    trainer = trl.SFTTrainer(given, arguments, train_dataset=data, processing_class=tokenizer)
    assert trainer.train().training_loss == pytest.approx(expected, rel=1e-5)
    assert not torch.equal(trainer.model.lm_head.shift.weight, before)


def test_per_token_results_for_trl():
    pytest.importorskip("trl")
    from trl.trainer.utils import add_fused_lm_head

    model = separate(convert(make_model(), 3)).train()
    outputs = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
    add_fused_lm_head(model, outputs=outputs)
    ids = some_ids()
    labels = ids.clone()
    labels[0, :5] = -100
    output = model(ids, labels=labels, fused_lm_head=True)
    log_p = model.eval()(ids).logits[:, :-1]
    counts = labels[:, 1:] != -100
    targets = ids[:, 1:]
    assert torch.equal(output.label_mask, counts)
    assert torch.allclose(output.log_probs, log_p.gather(-1, targets[..., None])[..., 0] * counts, atol=1e-5)
    assert torch.allclose(output.entropy, -(log_p.exp() * log_p).sum(-1) * counts, atol=1e-5)
    assert torch.allclose(output.log_sum_sq_probs, log_p.exp().square().sum(-1).log() * counts, atol=1e-5)
    assert torch.allclose(output.mean_logits, log_p.mean(-1) * counts, atol=1e-5)
    assert torch.equal(output.is_top1.bool(), (log_p.argmax(-1) == targets) & counts)


def test_an_entropy_bonus_of_trl_trains_the_model(monkeypatch):
    model = separate(convert(make_model(), 3)).train()
    ids = some_ids()
    weight = model.lm_head.shift.weight
    log_p = model.lm_head(model.model(ids).last_hidden_state[:, :-1])
    (expected,) = torch.autograd.grad(-(log_p.exp() * log_p).sum(), weight)
    monkeypatch.setattr("highrank.hf.mixture.STATISTICS_ELEMENTS", 2 * model.lm_head.vocab_size)  # several slabs
    output = model(ids, labels=ids, fused_lm_head=True)
    (gradient,) = torch.autograd.grad(output.entropy.sum(), weight)
    assert expected.abs().max() > 0
    assert torch.allclose(gradient, expected, atol=1e-5)


def test_dpo_trainer_trains_the_mixture(tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    model = convert(make_model(), 3)
    before = model.lm_head.shift.weight.detach().clone()
    arguments = trl.DPOConfig(
        tmp_path, max_steps=2, per_device_train_batch_size=2, learning_rate=0.01, bf16=False, **QUIET
    )
    data = Dataset.from_dict({"prompt": ["w2 w3"] * 4, "chosen": [" w4 w5"] * 4, "rejected": [" w6 w7"] * 4})
    tokenizer = word_tokenizer(pad_token="w0", eos_token="w1")
    trl.DPOTrainer(model, make_model(), arguments, train_dataset=data, processing_class=tokenizer).train()
    assert not torch.equal(model.lm_head.shift.weight, before)


def test_a_temperature_of_trl_is_an_error():
    pytest.importorskip("trl")
    from trl.trainer.utils import add_fused_lm_head

    with pytest.raises(UserError, match="temperature"):
        add_fused_lm_head(convert(make_model()), temperature=0.7)

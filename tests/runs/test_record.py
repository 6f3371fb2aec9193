"""Run records: the file format, and summaries of runs with several stages and pieces."""

import json
from pathlib import Path

import pytest
import torch

import highrank
from helpers import CPU, LEARNER, TOY, changed, epochs
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.runs import checkpoint as checkpoints
from highrank.runs.export import export_run, import_run
from highrank.runs.folder import Run
from highrank.runs.record import current_summary, read_record, read_summary, summarize, write_record
from highrank.runs.training import train_run

RESULTS = Path(__file__).parents[2] / "results" / "runs"
STAGED = changed(LEARNER, nonmono=1, max_epochs=4, finetunes=2, finetune_max_epochs=3)


def test_committed_records_are_read_and_written_unchanged(tmp_path):
    for path in RESULTS.glob("*.json"):
        write_record(tmp_path / "copy.json", read_record(path))
        copy = json.loads((tmp_path / "copy.json").read_text())
        stored = json.loads(path.read_text())
        # The copy may add optional keys, also to pieces.
        stored["pieces"] = [new | old for new, old in zip(copy["pieces"], stored["pieces"], strict=True)]
        assert copy == copy | stored, path


@pytest.mark.parametrize(
    ("change", "key"),
    [({"valid_ppl": "low"}, '"valid_ppl"'), ({"cache": {"valid_ppl": 60.0}}, '"cache.settings"')],
)
def test_a_malformed_record_is_an_error_that_names_the_key(change, key, tmp_path):
    data = json.loads((RESULTS / "ptb-mos-k15.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps(data | change))
    with pytest.raises(UserError, match=key):
        read_record(tmp_path / "record.json")


def test_each_stage_is_recorded_at_its_end(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    assert train_run(STAGED, toy_corpus, run, CPU) == "finished"
    summary = summarize(run, toy_corpus, CPU, "finished")
    stages = summary.stages
    assert [stage.stage for stage in stages] == [0, 1, 2]
    assert [stage.epochs for stage in stages] == [4, 7, 10]
    assert stages[0].seconds < stages[1].seconds < stages[2].seconds <= summary.seconds
    assert (stages[2].valid_ppl, stages[2].test_ppl) == (summary.valid_ppl, summary.test_ppl)
    assert summary.averaged_from == next(line["epoch"] for line in epochs(run) if line["averaged"])
    # Stage 0 equals the same run without finetuning.
    alone = Run(tmp_path / "alone")
    train_run(changed(STAGED, finetunes=0), toy_corpus, alone, CPU)
    expected = summarize(alone, toy_corpus, CPU, "finished")
    assert stages[0].valid_ppl == pytest.approx(expected.valid_ppl, rel=1e-6)
    assert stages[0].test_ppl == pytest.approx(expected.test_ppl, rel=1e-6)
    assert stages[0].best_epoch == expected.best_epoch
    assert stages[0].test_ppl != stages[2].test_ppl


def test_pieces_add_up_across_resume_and_export(toy_corpus, tmp_path):
    uncut = Run(tmp_path / "uncut")
    train_run(STAGED, toy_corpus, uncut, CPU)
    run = Run(tmp_path / "run")
    train_run(STAGED, toy_corpus, run, CPU, max_epochs=2)
    train_run(STAGED, toy_corpus, run, CPU, resume=True, max_epochs=5)
    export_run(run, tmp_path / "export", torch.float32, 10**6, averages_only=False)
    copy = Run(tmp_path / "copy")
    import_run(tmp_path / "export", copy)
    imported = current_summary(copy, toy_corpus, CPU)
    assert imported.outcome == "max-epochs"
    assert imported.curve.epoch == [1, 2, 3, 4, 5]
    assert train_run(STAGED, toy_corpus, copy, CPU, resume=True, time_budget=600) == "finished"
    summary = current_summary(copy, toy_corpus, CPU)
    assert summary.outcome == "finished"
    assert summary.epochs == 10
    assert summary.curve.epoch == list(range(1, 11))
    assert summary.curve.seconds == sorted(summary.curve.seconds)
    assert [(piece.epoch, piece.time_budget, piece.outcome) for piece in summary.pieces] == [
        (0, None, "max-epochs"), (2, None, "max-epochs"), (5, 600, "finished"),
    ]  # fmt: skip
    assert summary.pieces[2].seconds < summary.seconds
    assert [piece.exported is not None for piece in summary.pieces] == [False, True, False]
    assert summary.pieces[1].exported.dtype == "float32"
    assert summary.curve.valid_ppl == current_summary(uncut, toy_corpus, CPU).curve.valid_ppl


def test_a_summary_of_an_earlier_state_is_replaced(tmp_path, toy_corpus):
    run = Run(tmp_path / "run")
    train_run(TOY, toy_corpus, run, CPU, max_epochs=1)
    assert read_summary(run) is None
    first = summarize(run, toy_corpus, CPU, "max-epochs")
    assert current_summary(run, toy_corpus, CPU) == read_summary(run) == first
    train_run(TOY, toy_corpus, run, CPU, resume=True, max_epochs=3)
    assert read_summary(run) is None
    assert current_summary(run, toy_corpus, CPU).epochs == 3
    answers = iter([False, True])  # interrupted in the middle of an epoch
    assert train_run(TOY, toy_corpus, run, CPU, resume=True, should_stop=lambda: next(answers)) == "interrupted"
    summary = current_summary(run, toy_corpus, CPU)
    assert (summary.epochs, summary.updates) == (3, checkpoints.read(run.folder).state.step)


def test_a_summary_in_another_format_is_replaced(tmp_path, toy_corpus):
    run = Run(tmp_path / "run")
    train_run(TOY, toy_corpus, run, CPU, max_epochs=1)
    summary = summarize(run, toy_corpus, CPU, "max-epochs")
    data = json.loads(run.summary_file.read_text())
    run.summary_file.write_text(json.dumps({**data, "key_of_another_version": 1}))
    assert read_summary(run) is None
    assert current_summary(run, toy_corpus, CPU) == read_summary(run) == summary


def test_a_summary_evaluates_the_best_weights(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train_run(TOY, toy_corpus, run, CPU, max_epochs=2)
    model = highrank.load(run.folder).model
    summary = current_summary(run, toy_corpus, CPU)
    assert summary.valid_ppl == evaluate(model, toy_corpus.splits["valid"]).perplexity
    assert summary.test_ppl == evaluate(model, toy_corpus.splits["test"]).perplexity


def test_the_curve_ends_at_the_checkpoint(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train_run(TOY, toy_corpus, run, CPU, max_epochs=2)
    lines = epochs(run)
    with run.metrics_file.open("a") as file:  # a line after the last checkpoint, as a kill leaves it
        file.write(json.dumps({**lines[-1], "epoch": 3}) + "\n")
    curve = summarize(run, toy_corpus, CPU, "max-epochs").curve
    assert curve.epoch == [1, 2]
    assert curve.seconds == [round(line["seconds"], 4) for line in lines]
    assert curve.train_ppl == [round(line["train_ppl"], 4) for line in lines]
    assert curve.valid_ppl == [round(line["valid_ppl"], 4) for line in lines]

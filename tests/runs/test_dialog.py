"""Dialog runs on disk: exact resume within an epoch, export, scores, and errors."""

import pytest
import torch

import highrank
from helpers import CPU, TOY_DIALOG, assert_same_run
from highrank.errors import UserError
from highrank.runs.corpora import run_corpus
from highrank.runs.dialog import dialog_scores, load_dialog
from highrank.runs.export import export_run, import_run
from highrank.runs.folder import Run
from highrank.runs.record import dialog_summary, read_record
from highrank.runs.training import train_run


def test_an_interrupted_run_resumes_exactly(toy_dialogs, tmp_path):
    whole = Run(tmp_path / "whole")
    cut = Run(tmp_path / "cut")
    train_run(TOY_DIALOG, toy_dialogs, whole, CPU)
    calls = 0

    def stop():
        nonlocal calls
        calls += 1
        return calls % 5 == 0

    outcome = train_run(TOY_DIALOG, toy_dialogs, cut, CPU, should_stop=stop)
    assert outcome == "interrupted"
    while outcome == "interrupted":
        torch.manual_seed(calls)  # the process may have used the generator in between
        outcome = train_run(TOY_DIALOG, toy_dialogs, cut, CPU, resume=True, should_stop=stop)
    assert outcome == "finished"
    assert_same_run(whole, cut)


@pytest.fixture
def run(toy_dialogs, tmp_path):
    run = Run(tmp_path / "run")
    train_run(TOY_DIALOG, toy_dialogs, run, CPU, max_epochs=1)
    return run


def test_a_summary_holds_the_scores_and_keeps_them(run, toy_dialogs):
    summary = dialog_summary(run, toy_dialogs, CPU)
    loaded = load_dialog(run.folder)
    expected = dialog_scores(loaded, toy_dialogs, "test")
    assert summary.dialog.precision == expected.precision
    assert summary.dialog.recall == expected.recall
    assert summary.dialog.contexts == 21
    assert "80" in summary.corpus_extent
    assert read_record(run.summary_file) == summary == dialog_summary(run, toy_dialogs, CPU)
    assert summary.parameters == loaded.model.n_parameters()


@pytest.mark.parametrize("averages_only", [False, True])
def test_an_export_continues_training(run, toy_dialogs, tmp_path, averages_only):
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only)
    copy = Run(tmp_path / "copy")
    import_run(tmp_path / "export", copy)
    assert train_run(TOY_DIALOG, toy_dialogs, copy, CPU, resume=True, max_epochs=2) == "max-epochs"
    assert copy.epochs()[-1].valid_ppl < copy.epochs()[0].valid_ppl


def test_functions_for_language_models_name_a_dialog_run(run):
    with pytest.raises(UserError, match="run"):
        highrank.load(run.folder)
    with pytest.raises(UserError, match="run"):
        run_corpus(run.folder, None)

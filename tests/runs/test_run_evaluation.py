"""`highrank.evaluate` from Python."""

import dataclasses
import math

import pytest

import highrank
from helpers import CPU, TOY
from highrank.errors import UserError
from highrank.runs.folder import Run
from highrank.runs.training import train_run


@pytest.fixture
def run(toy_corpus, toy_folder, tmp_path):
    recipe = dataclasses.replace(TOY, data=dataclasses.replace(TOY.data, corpus=str(toy_folder)))
    train_run(recipe, toy_corpus, Run(tmp_path / "run"), CPU, max_epochs=1)
    return tmp_path / "run"


def test_a_number_of_tokens_to_tune_on_turns_tuning_on(run):
    assert highrank.evaluate(run, method="cache", tune_tokens=20).tuned.tokens == 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"method": "cache", "tune_tokens": 0},
        {"method": "dynamic", "segment": 0},
        {"method": "dynamic", "segment": 2.5},
        {"method": "dynamic", "lr": -1.0},
        {"method": "dynamic", "epsilon": 0.0},
        {"method": "cache", "window": 0},
        {"method": "cache", "theta": math.nan},
    ],
    ids=str,
)
def test_a_value_out_of_range_is_an_error_that_names_it(run, wrong):
    with pytest.raises(UserError, match=list(wrong)[-1]):
        highrank.evaluate(run, **wrong)


@pytest.mark.parametrize("path", ["toy", "toy/test.txt/log_probs.npy"])
def test_the_file_of_log_probs_is_checked_before_the_evaluation(run, path):
    stages = []
    with pytest.raises(UserError, match="toy"):
        highrank.evaluate(run, log_probs=run.parent / path, on_stage=lambda *stage: stages.append(stage))
    assert stages == []

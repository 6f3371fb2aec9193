"""`highrank.evaluate` from Python."""

import dataclasses

import pytest

import highrank
from helpers import CPU, TOY
from highrank.runs.folder import Run
from highrank.runs.training import train


@pytest.fixture
def run(toy_corpus, toy_folder, tmp_path):
    recipe = dataclasses.replace(TOY, data=dataclasses.replace(TOY.data, corpus=str(toy_folder)))
    train(recipe, toy_corpus, Run(tmp_path / "run"), CPU, max_epochs=1)
    return tmp_path / "run"


def test_a_number_of_tokens_to_tune_on_turns_tuning_on(run):
    assert highrank.evaluate(run, method="cache", tune_tokens=20).tuned.tokens == 20

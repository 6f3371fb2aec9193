"""`highrank evaluate`: perplexity, dynamic evaluation, the cache, and tuning."""

import json

import numpy as np
import pytest

from helpers import fails, highrank


def evaluate(*options, cwd):
    return json.loads(highrank("evaluate", "run", *options, "--json", cwd=cwd).stdout)


def test_evaluation_agrees_with_the_summary(place, trained):
    summary = json.loads((trained / "summary.json").read_text())
    assert evaluate("--split", "valid", cwd=place)["perplexity"] == pytest.approx(summary["valid_ppl"])
    assert evaluate(cwd=place)["perplexity"] == pytest.approx(summary["test_ppl"])


def test_the_perplexity_is_printed(place, trained):
    perplexity = evaluate(cwd=place)["perplexity"]
    trained.rename(place / "a[red]")  # brackets are not markup
    output = highrank("evaluate", "a[red]", cwd=place).stdout
    assert f"{perplexity:.2f}" in output
    assert "a[red]" in output


def test_dynamic_evaluation_uses_the_given_settings(place, trained):
    plain = evaluate(cwd=place)
    result = evaluate("--dynamic", "--lr", 0.01, "--lambda", 0.1, cwd=place)
    assert result["dynamic"] == {"lr": 0.01, "lamb": 0.1, "epsilon": 0.001, "segment": 5, "stats_batch_size": 100}
    assert result["perplexity"] != plain["perplexity"]
    assert result["tokens"] == plain["tokens"]
    assert evaluate("--dynamic", "--lr", 0.01, "--lambda", 0.1, cwd=place) == result  # from cached statistics


def test_the_cache_uses_the_given_settings(place, trained):
    plain = evaluate(cwd=place)
    result = evaluate("--cache", "--window", 50, cwd=place)
    assert result["cache"] == {"window": 50, "theta": 1.0, "lamb": 0.1}
    assert result["perplexity"] != plain["perplexity"]
    assert result["tokens"] == plain["tokens"]


@pytest.mark.parametrize("method", ["dynamic", "cache"])
def test_tuned_settings_are_those_of_the_best_point(place, trained, method):
    result = evaluate(f"--{method}", "--tune", "--tune-tokens", 60, cwd=place)
    tuned = result["tuned"]
    assert result[method] == tuned["best"]
    assert tuned["tokens"] == 60
    assert tuned["tried"][0]["perplexity"] == min(point["perplexity"] for point in tuned["tried"])
    assert {key: tuned["tried"][0][key] for key in tuned["best"]} == tuned["best"]
    settings = {key.replace("lamb", "lambda"): value for key, value in tuned["best"].items()}
    settings.pop("stats_batch_size", None)
    options = [word for key, value in settings.items() for word in (f"--{key}", value)]
    assert evaluate(f"--{method}", *options, cwd=place)["perplexity"] == pytest.approx(result["perplexity"])


def test_a_search_that_reaches_its_limit_is_reported(place, trained, monkeypatch):
    search = ("evaluate", "run", "--dynamic", "--tune-tokens", 60)
    finished = highrank(*search, cwd=place).stdout
    monkeypatch.setattr("highrank.evaluation.tune.MOST_POINTS", 2)
    assert len(highrank(*search, cwd=place).stdout.splitlines()) == len(finished.splitlines()) + 1


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--lr 1", "lr"),
        ("--lambda 1", "lambda"),
        ("--tune", "tune"),
        ("--tune-tokens 60", "tune"),
        ("--dynamic --theta 1", "theta"),
        ("--cache --epsilon 1", "epsilon"),
        ("--dynamic --batch-size 2", "batch-size"),
        ("--dynamic --cache", "--cache"),
        ("--dynamic --lambda 0", "lambda"),
        ("--cache --lambda 1.5", "lambda"),
    ],
)
def test_an_option_without_effect_or_out_of_range_is_an_error(place, trained, options, name):
    assert name in fails("evaluate", "run", *options.split(), cwd=place)


def test_a_corpus_in_a_folder_is_found_from_anywhere(place, trained):
    (place / "elsewhere").mkdir()
    highrank("evaluate", "../run", cwd=place / "elsewhere")


def test_a_missing_run_is_an_error(place):
    assert "nothing" in fails("evaluate", "nothing", cwd=place)
    assert "run.json" in fails("evaluate", "toy", cwd=place)


def test_a_damaged_file_is_an_error(place, trained):
    (model,) = trained.glob("model-*.safetensors")
    model.write_bytes(b"not a model")
    assert model.name in fails("evaluate", "run", cwd=place)
    (trained / "run.json").write_text("[]")
    assert "run.json" in fails("evaluate", "run", cwd=place)


@pytest.mark.parametrize("method", [[], ["--batch-size", 3], ["--cache"], ["--dynamic"]])
def test_log_probs_of_all_tokens_give_the_perplexity(place, trained, method):
    result = evaluate(*method, "--log-probs", "log_probs.npy", cwd=place)
    log_probs = np.load(place / "log_probs.npy")
    assert log_probs.dtype == np.float16
    assert len(log_probs) == result["tokens"]
    assert np.exp(-log_probs.mean(dtype=np.float64)) == pytest.approx(result["perplexity"], rel=1e-3)

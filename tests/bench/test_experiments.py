"""The scripts that train, read or mix models run at toy sizes, and their tables hold what they promise."""

import csv
import math
import sys

import numpy as np
import pytest

import character_heads
import cut_run
import dialog_length_penalty
import explore
import head_start
import mix_log_probs
import plus
import quality
import responsibilities
import sampled_backward
import split_words
import unargmaxable
from helpers import TOY, highrank
from highrank.recipes import override


@pytest.fixture
def run(place, monkeypatch):
    """Return a function that runs a script as from a shell, with the toy recipe in place of every other."""
    monkeypatch.chdir(place)

    def run_script(script, *arguments, recipe=TOY):
        if hasattr(script, "get_recipe"):
            monkeypatch.setattr(script, "get_recipe", lambda name: recipe)
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, arguments)])
        script.main()

    return run_script


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_plus_variants_are_compared_with_the_plain_run(run, place, capsys, monkeypatch):
    trained = []
    train = plus.train
    monkeypatch.setattr(plus, "train", lambda recipe, *rest: trained.append(recipe.train) or train(recipe, *rest))
    recipe = override(TOY, ["train.averaging=two-tailed"])
    arguments = ("--seeds", 1, 2, "--epochs", 2, "--tokens", 300, "--device", "cpu", "--csv", "a.csv")
    run(plus, "--set", *arguments, recipe=recipe)
    rows = read_rows(place / "a.csv")
    assert [row["variant"] for row in rows] == [*plus.PLUS, *plus.PLUS]
    assert {(row["tokens"], row["epochs"]) for row in rows} == {("300", "2")}
    settings = [(spec.partial_shuffle, spec.averaging) for spec in trained]
    wanted = [(shuffle, averaging) for averaging in ("nt-asgd", "two-tailed") for shuffle in (False, True)]
    assert settings == wanted * 2  # whatever the recipe has
    assert capsys.readouterr().out.count("standard error") == 3


def test_heads_on_characters_have_equally_many_parameters(tmp_path, monkeypatch):
    (tmp_path / "text8").write_text("the cat sat on the mat " * 20)
    monkeypatch.setattr(character_heads, "SETTINGS", ["train.batch_size=4", "train.bptt=5"])
    options = {"--seeds": 1, "--epochs": 1, "--characters": 100, "--device": "cpu", "--csv": tmp_path / "a.csv"}
    words = [str(word) for option in options.items() for word in option]
    monkeypatch.setattr(sys, "argv", ["character_heads.py", "--data-dir", str(tmp_path), *words])
    character_heads.main()
    rows = read_rows(tmp_path / "a.csv")
    assert [row["head"] for row in rows] == ["softmax", "untied", "moc", "mos"]
    parameters = [int(row["parameters"]) for row in rows]
    assert max(parameters) < 1.02 * min(parameters)
    assert all(0 < float(row["test_bpc"]) < 10 for row in rows)


def test_a_run_that_was_cut_is_compared_with_the_whole_one(run, place):
    run(cut_run, "--set", "--seeds", 1, "--epochs", 2, "--cut", 1, "--device", "cpu", "--csv", "a.csv")
    (row,) = read_rows(place / "a.csv")
    lost = math.log(float(row["cut_test_ppl"]) / float(row["uncut_test_ppl"]))
    assert float(row["lost"]) == pytest.approx(lost)


def test_fast_and_plain_training_have_one_row_per_epoch(run, place):
    run(quality, "--seeds", 1, "--epochs", 2, "--device", "cpu", "--csv", "a.csv")
    assert [row["epoch"] for row in read_rows(place / "a.csv")] == ["1", "2", "1", "2"]


def test_the_noise_of_sampled_gradients_is_measured(run, place):
    options = ("--set", "--epochs", 1, "--batches", 3, "--tokens", 300, "--device", "cpu", "--csv", "a.csv")
    run(sampled_backward, *options)
    rows = read_rows(place / "a.csv")
    kept = [float(row["kept"]) for row in rows]
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] == pytest.approx(1 / 3)  # eps = 1 keeps one of three rows
    assert all(float(row["noise"]) >= 0 for row in rows)


def test_responsibilities_are_counted(run, place, trained):
    run(responsibilities, trained, "--tokens", 50, "--csv", "a.csv")
    rows = read_rows(place / "a.csv")
    counts = [float(row["components"]) for row in rows]  # thresholds fall
    assert counts == sorted(counts)
    assert 1 <= counts[0] <= counts[-1] <= 3
    assert all(0 < float(row["share"]) <= 1 + 1e-6 for row in rows)


def test_log_probabilities_of_two_models_are_mixed(run, place, trained, capsys):
    evaluated = highrank("evaluate", trained, "--split", "test", "--log-probs", "a.npy", "--json", cwd=place)
    a = np.load(place / "a.npy")
    b = np.flip(a)
    np.save(place / "b.npy", b)
    run(mix_log_probs, "a.npy", "b.npy", "--weights", 3, 1)
    printed = [float(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    mixture = 0.75 * np.exp(a.astype(np.float64)) + 0.25 * np.exp(b.astype(np.float64))
    assert printed[0] == printed[1] == pytest.approx(math.exp(-a.mean(dtype=np.float64)), abs=1e-3)
    assert printed[2] == pytest.approx(math.exp(-np.log(mixture).mean()), abs=1e-3)
    assert f"{printed[0]:.1f}" in evaluated.stdout


def test_log_probabilities_of_different_texts_are_not_mixed(run, place):
    np.save(place / "a.npy", np.zeros(3))
    np.save(place / "b.npy", np.zeros(4))
    with pytest.raises(SystemExit):
        run(mix_log_probs, "a.npy", "b.npy")


def test_bleu_is_scored_at_every_length_penalty(run, tmp_path, trained_dialog):
    run(dialog_length_penalty, trained_dialog, "--csv", "a.csv")
    rows = read_rows(tmp_path / "a.csv")
    assert [float(row["length_penalty"]) for row in rows] == list(dialog_length_penalty.PENALTIES)


def test_planted_unargmaxable_tokens_are_found(run, place, monkeypatch):
    monkeypatch.setattr(unargmaxable, "N_UNUSED", 20)
    run(unargmaxable, "2000x64", "--csv", "a.csv")
    assert [row["exact"] for row in read_rows(place / "a.csv")] == ["True", "True"]


def test_libraries_that_split_words_count_the_same_tokens(run, place):
    run(split_words, "toy/train.txt", "--csv", "a.csv")
    rows = {row["library"]: row["tokens"] for row in read_rows(place / "a.csv")}
    assert {"python", "pyarrow", "tokenizers"} <= rows.keys()
    assert len(set(rows.values())) == 1


def test_every_head_has_a_learning_curve(run, place, monkeypatch):
    for name, value in {"STEPS": 20, "EVERY": 1, "BATCH": 1, "WINDOW": 4}.items():
        monkeypatch.setattr(head_start, name, value)
    run(head_start, "--csv", "a.csv")
    assert len(read_rows(place / "a.csv")) == 20 * len(head_start.VARIANTS)
    assert (place / "a.png").exists()


def test_the_explorer_answers_while_it_is_timed(run, place, trained, monkeypatch):
    monkeypatch.setattr(explore.shutil, "which", lambda name: None)  # no browser
    run(explore, "--run", trained, "--rounds", 1, "--csv", "a.csv")
    rows = {row["what"]: float(row["median_ms"]) for row in read_rows(place / "a.csv")}
    assert {"from nothing", "letter typed at the end", "word changed in the middle"} < rows.keys()

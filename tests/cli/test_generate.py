"""`highrank generate`: reproducible text from a word or character model."""

import re

import pytest

from helpers import fails, highrank, settings


@pytest.fixture
def characters(place):
    """A run of one epoch on the characters of the toy corpus."""
    extra = settings("data.corpus=toy data.level=char")
    highrank("train", "ptb-mos", *extra, "--out", "run", "--max-epochs", 1, cwd=place)


def generate(*options, cwd):
    return highrank("generate", "run", "--length", 8, *options, cwd=cwd).stdout


def test_the_same_seed_gives_the_same_text(place, trained):
    texts = [generate("--prompt", "the cat", "--seed", seed, cwd=place) for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("the cat")


def test_without_a_seed_one_is_drawn_and_shown(place, trained):
    done = highrank("generate", "run", "--length", 30, cwd=place)
    seed = re.search(r"--seed (\d+)", done.stderr)[1]
    assert highrank("generate", "run", "--length", 30, "--seed", seed, cwd=place).stdout == done.stdout
    assert highrank("generate", "run", "--length", 30, cwd=place).stdout != done.stdout


def test_samples_differ_and_repeat_with_the_seed(place, trained):
    options = "--prompt", "the cat", "--length", 30, "--seed", 3, "--samples"
    three = highrank("generate", "run", *options, 3, cwd=place).stdout
    texts = three.strip().split("\n\nthe cat")
    assert len(set(texts)) == 3
    assert three.startswith(highrank("generate", "run", *options, 1, cwd=place).stdout)


@pytest.mark.parametrize("option", ["--samples=2", "--temperature=0.5", "--top-k=3", "--top-p=0.5", "--seed=1"])
def test_a_beam_takes_no_options_of_sampling(place, trained, option):
    assert option.split("=")[0] in fails("generate", "run", "--beam", 2, option, cwd=place)


def test_temperature_zero_does_not_depend_on_the_seed(place, trained):
    assert generate("--temperature", 0, cwd=place) == generate("--temperature", 0, "--seed", 5, cwd=place)


def test_a_beam_prints_the_likeliest_lines_best_first(place, trained):
    lines = generate("--prompt", "the cat", "--beam", 3, cwd=place).splitlines()
    scores = [float(line.split()[0]) for line in lines]
    assert len(lines) == 3
    assert scores == sorted(scores, reverse=True)
    assert all(line.split()[1:3] == ["the", "cat"] for line in lines)


def test_a_dialog_model_is_not_continued(trained_dialog):
    assert "talk" in fails("generate", "talk", cwd=trained_dialog.parent)


def test_unknown_words_are_an_error_without_unk(place, trained):
    assert '"elephant"' in fails("generate", "run", "--prompt", "elephant", cwd=place)


@pytest.mark.parametrize("option", ["--top-p=0", "--top-p=1.5", "--temperature=-1", "--top-k=0"])
def test_impossible_options_are_errors(place, trained, option):
    assert option.partition("=")[0] in fails("generate", "run", option, cwd=place)


def test_an_empty_prompt_is_an_error(place, trained):
    assert "prompt" in fails("generate", "run", "--prompt", "", cwd=place)


def test_characters_continue_a_prompt(place, characters):
    assert generate("--prompt", "the c", cwd=place).startswith("the c")


def test_characters_start_at_a_line_end_by_default(place, characters):
    assert generate(cwd=place).strip()


def test_a_missing_run_is_an_error(place):
    assert "nothing" in fails("generate", "nothing", cwd=place)

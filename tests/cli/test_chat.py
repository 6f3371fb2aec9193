"""`highrank chat` with piped input; the terminal's line editing belongs to prompt_toolkit."""

import builtins
import io

import pytest

from helpers import fails, highrank
from highrank.evaluation.dialog import Reply


@pytest.fixture
def type_lines(monkeypatch):
    """Return a function that provides the lines of standard input."""

    def provide(*lines, terminal=False):
        stdin = io.StringIO("".join(f"{line}\n" for line in lines))
        stdin.isatty = lambda: terminal
        monkeypatch.setattr("sys.stdin", stdin)

    return provide


def test_every_line_gets_the_best_replies_with_falling_scores(trained_dialog, type_lines):
    type_lines("the cat", "", "a dog eats")
    lines = highrank("chat", "talk", cwd=trained_dialog.parent).stdout.splitlines()
    first, second = [i for i, line in enumerate(lines) if line.startswith("you> ") and line != "you> "]
    for start in (first, second):
        scores = [float(line.split()[0]) for line in lines[start + 1 : start + 6]]
        assert scores == sorted(scores, reverse=True)


def test_the_dialog_so_far_is_the_context(trained_dialog, type_lines, monkeypatch):
    contexts = []

    def answer(model, words, dialog, *settings):
        contexts.append([(utterance.speaker, " ".join(utterance.words)) for utterance in dialog])
        return [Reply(["well", str(len(contexts))], -1.0), Reply(["no"], -2.0)]

    monkeypatch.setattr("highrank.evaluation.dialog.find_replies", answer)
    type_lines("big bird", "the cat")
    highrank("chat", "talk", cwd=trained_dialog.parent)
    assert contexts == [[("you", "big bird")], [("you", "big bird"), ("model", "well 1"), ("you", "the cat")]]


def test_a_beam_of_one_gives_one_reply(trained_dialog, type_lines):
    type_lines("the cat")
    assert len(highrank("chat", "talk", "--beam", 1, cwd=trained_dialog.parent).stdout.splitlines()) == 2


def test_a_temperature_draws_replies_at_random(trained_dialog, type_lines):
    def replies():
        type_lines("the cat")
        return highrank("chat", "talk", "--temperature", 2, cwd=trained_dialog.parent).stdout.splitlines()[1:]

    first = replies()
    assert len(first) == 5
    assert any(replies() != first for _ in range(5))
    assert fails("chat", "talk", "--temperature", 1, "--beam", 2, cwd=trained_dialog.parent)


def test_unknown_words_are_named(trained_dialog, type_lines):
    type_lines("the elephant")
    assert "elephant" in highrank("chat", "talk", cwd=trained_dialog.parent).stderr


def test_a_language_model_does_not_chat(place, trained):
    assert "run" in fails("chat", "run", cwd=place)


def test_a_terminal_without_prompt_toolkit_is_an_error(trained_dialog, type_lines, monkeypatch):
    type_lines("the cat", terminal=True)
    original = builtins.__import__

    def missing(name, *arguments):
        if name.startswith("prompt_toolkit"):
            raise ImportError(name)
        return original(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert "prompt_toolkit" in fails("chat", "talk", cwd=trained_dialog.parent)

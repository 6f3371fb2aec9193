"""Signals that stop a training."""

import os
import signal

import pytest

from helpers import settings
from highrank.cli.signals import stop_on_signal
from highrank.cli.training_display import TrainingDisplay
from highrank.errors import UserError
from highrank.runs.launch import train_recipe


@pytest.fixture
def sigterm():
    """Install a handler of SIGTERM and yield the list of signals it receives; restore all handlers afterwards."""
    received = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    yield received
    for number, handler in before.items():
        signal.signal(number, handler)


def test_handlers_are_restored_after_training(sigterm):
    with stop_on_signal() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals == [signal.SIGTERM]
    os.kill(os.getpid(), signal.SIGTERM)
    assert sigterm == [signal.SIGTERM]


def test_a_signal_after_an_error_does_not_end_the_process_before_the_error_is_printed(place, sigterm):
    """As when torchrun ends the processes whose training failed because another one died."""

    def fail():
        raise UserError("another process has ended")

    display = TrainingDisplay(None, None, is_new_default=False)
    changes = ["data.corpus=" + str(place / "toy"), *settings()[1::2]]
    with pytest.raises(UserError, match="another process"):
        train_recipe("ptb-mos", settings=changes, out=place / "run", callbacks=display, should_stop=fail)
    os.kill(os.getpid(), signal.SIGTERM)
    assert display.should_stop()
    assert not sigterm

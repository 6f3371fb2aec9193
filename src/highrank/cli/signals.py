"""Ctrl-C, schedulers and closed terminals: signals that ask a training to save and stop."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from highrank.cli.console import out


@contextlib.contextmanager
def stop_on_signal() -> Iterator[list[int]]:
    """Collect signals in a list, so that training saves and stops. A second Ctrl-C interrupts at once.

    Ctrl-C sends SIGINT, schedulers send SIGTERM, and a terminal that closes sends SIGHUP. After an error, signals are
    still collected: when one process of several fails, torchrun sends SIGTERM to the others, which would end before
    they have printed their own error.
    """
    signals: list[int] = []

    def handle(number: int, frame: object) -> None:
        if signals and number == signal.SIGINT:
            raise KeyboardInterrupt
        signals.append(number)
        with contextlib.suppress(RuntimeError):  # of the stream, if the signal interrupted another print
            out.print("stopping soon ...")

    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]  # Windows has no SIGHUP
    numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # as nohup asks for
    handlers = {number: signal.signal(number, handle) for number in numbers}
    with contextlib.redirect_stdout(cast(TextIO, _UntilHangup(sys.stdout))):
        yield signals
    for number, handler in handlers.items():
        signal.signal(number, handler)


class _UntilHangup:
    """Standard output until its terminal is closed, then nothing: a failing print must not prevent saving.

    Closing a terminal also sends SIGHUP, but a print that waits for the terminal fails before Python's handler runs.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._discard()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._discard()

    def _discard(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):  # standard output and error
            os.dup2(nowhere, descriptor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

"""The `highrank` command, also as `python -m highrank`: a place to be interrupted from the first import on."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = "highrank: interrupted."


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell has it ignored in the background
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from highrank.cli import main as command

        command()
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C raises, but leaves at once from an import, where an exception may be swallowed or become another."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, f"{INTERRUPTED}\n".encode())
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()

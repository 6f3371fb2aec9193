"""The `highrank` command, also as `python -m highrank`: a place to be interrupted from the first import on."""

import sys


def main() -> None:
    try:
        from highrank.cli import main as command

        command()
    except KeyboardInterrupt:
        print("highrank: interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()

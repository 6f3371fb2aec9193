"""The `highrank` command, also available as `python -m highrank`."""

import sys


def main() -> None:
    """Run the command line. The imports are inside the block because Ctrl-C may arrive while they run."""
    try:
        from highrank.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        print("highrank: interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()

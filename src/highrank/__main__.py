"""`python -m highrank`: the `highrank` command."""

from highrank.cli import main

main()

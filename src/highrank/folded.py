"""Tables for a terminal that may be narrow."""

from rich.table import Table


def folded(table: Table) -> Table:
    """The table, with cells that go on in the next line where rich would cut them off: half a number is a wrong one."""
    for column in table.columns:
        column.overflow = "fold"
    return table

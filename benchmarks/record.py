"""How benchmarks leave their numbers: CSV with a header, whole or not at all."""

import csv
from pathlib import Path
from typing import Any

from highrank.files import replacing


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with replacing(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f"written to {path}")

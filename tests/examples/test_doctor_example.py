import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "doctor.py"


def test_the_example_finds_the_planted_token(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["doctor.py", "--vocabulary", "200", "--dim", "24"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].endswith("[7]")
    table = [line.split() for line in lines[5:]]
    assert [row[0] for row in table] == ["1", "2", "4", "8"]
    reached = [float(row[3]) for row in table]
    assert reached == sorted(reached)

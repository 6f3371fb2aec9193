"""Values of shared options: times and sizes."""

import pytest

from highrank.cli.options import parse_bytes, parse_seconds
from highrank.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("25m", 1500), ("1.5h", 5400), ("2H", 7200), ("0.5", 0.5)]
)
def test_times(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "soon", "0", "-5m", "nan", "inf", "5d"])
def test_invalid_times(text):
    with pytest.raises(UserError):
        parse_seconds(text)


@pytest.mark.parametrize(("text", "size"), [("15MB", 15_000_000), ("512kB", 512_000), ("1.5gb", 1_500_000_000)])
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "15", "15XB", "99kB", "-1MB", "infMB"])
def test_invalid_sizes(text):
    with pytest.raises(UserError):
        parse_bytes(text)

"""Slurm's formats of --time, as its manual lists them."""

import pytest

from mixit_titan.errors import ConfigError
from mixit_titan.slurm.cluster import seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "90": 90 * 60,
        "90:30": 90 * 60 + 30,
        "1:30:00": 5400,
        "2-12": 60 * 3600,
        "2-12:30": 60 * 3600 + 1800,
        "2-12:30:15": 60 * 3600 + 1815,
        "UNLIMITED": float("inf"),
    }.items(),
)
def test_all_formats(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "1d", "-5", "1-"])
def test_nothing_else(text: str) -> None:
    with pytest.raises(ConfigError, match="write HH:MM:SS"):
        seconds(text)

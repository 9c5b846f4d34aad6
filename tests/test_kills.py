"""A few of the kills of tests/kills.py; it says how to run many."""

from pathlib import Path

import pytest

from tests.forkserver import Forkserver
from tests.kills import kill_randomly


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prepare", "train on 2", "task"])
def test_killed_commands_end_as_unbroken_ones(
    tmp_path: Path, forkserver: Forkserver, name: str
) -> None:
    rows = kill_randomly(tmp_path, count=3, seed=7, server=forkserver, only=[name])
    assert sum(kills for _, _, kills, _ in rows) >= 3

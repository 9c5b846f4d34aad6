"""The commands of README.md, the tutorials and the how-tos run one after another as they stand, in
a folder of their own, at small sizes (tests/documented_runs.py)."""

from pathlib import Path

import pytest

from tests.documented import ROOT
from tests.documented_runs import Reader, put
from tests.forkserver import Forkserver

RUN = {
    "README.md": 16,
    "docs/tutorial_laptop.md": 8,
    "docs/tutorial_cluster.md": 2,
    "docs/own_task.md": 4,
    "docs/own_mixer.md": 3,
    "docs/own_stack.md": 7,
    "docs/own_corpus.md": 8,
    "docs/evaluate.md": 3,
}
"""Page -> at least so many of its commands are run; the others are read."""


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run_one_after_another(
    page: str, tmp_path: Path, forkserver: Forkserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path, forkserver)
    reader.read(ROOT / page)
    assert len(reader.run) >= RUN[page], reader.only_read


def test_a_size_takes_the_place_of_the_one_that_is_there() -> None:
    words = ["bench", "--seq-len", "256,512", "--out", "runs/a"]
    assert put(words, seq_len=32) == ["bench", "--out", "runs/a", "--seq-len", "32"]
    assert put(["sweep", "--variants", "a", "b"], variants="c d")[-3:] == ["--variants", "c", "d"]
    assert put(["train"], training__steps=2) == ["train", "--training.steps", "2"]

"""Commands whose folder another process is writing to: one sentence that says so."""

import json
import shutil
from pathlib import Path

import pytest

from mixit_titan.jobs.lock import locked
from tests.comparison.conftest import write_run
from tests.forkserver import Forkserver
from tests.fuzz.attempt import attempt, check
from tests.fuzz.files import BENCH
from tests.runtime.conftest import Runs

COMMANDS = {
    "task": "task modular --steps 2 --out OUT",
    "sweep": "sweep modular --variants standard --set steps=2 --out OUT",
    "suite": "suite state --only parity --stacks standard --set steps=2 --out OUT",
    "ladder": "ladder --stacks standard --report --out OUT",
    "demo": "demo --steps 10 --out OUT",
    "bench": "bench --width 16 --out OUT",
    "bench --compare": "bench --compare BENCH BENCH --out OUT",
    "reproduce": "reproduce --only table4 --steps 2 --out OUT",
    "compare": "compare ONE OTHER --out OUT",
    "eval": "eval RUN --text TEXT --out OUT",
    "analyze": "analyze spectrum RUN --sequences 2 --out OUT",
    "analyze without a run": "analyze sde --paths 2 --widths 8 --out OUT",
}


@pytest.fixture(scope="module")
def places(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the words in capitals stand for."""
    root = tmp_path_factory.mktemp("locked")
    (root / "text.txt").write_text("A text.")
    (root / "bench.json").write_text(json.dumps(BENCH))
    return {
        "RUN": str(runs.folder("mixit")),
        "BENCH": str(root / "bench.json"),
        "TEXT": str(root / "text.txt"),
        "ONE": str(write_run(root / "one", "standard", {1: 5.0, 2: 4.0})),
        "OTHER": str(write_run(root / "other", "mixit", {1: 5.0, 2: 3.0})),
    }


def refused(server: Forkserver, words: list[str], folder: Path) -> None:
    outcome = attempt(server, words, folder, seconds=120)
    check(outcome, codes=(2,))
    (said,) = outcome.sentences
    assert "another mixit-titan (process" in said and "is writing to" in said, said


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_folder_has_one_writer(
    command: str, places: dict[str, str], forkserver: Forkserver, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = [({"OUT": str(out)} | places).get(word, word) for word in command.split()]
    with locked(out):
        refused(forkserver, words, tmp_path)
        assert [path.name for path in out.iterdir()] == [".lock"]


def test_an_export_has_one_writer(
    places: dict[str, str], forkserver: Forkserver, tmp_path: Path
) -> None:
    """Its folder appears when it is complete: the lock is beside it."""
    out = tmp_path / "out"
    with locked(out, beside=True):
        refused(forkserver, ["export", places["RUN"], "--out", str(out)], tmp_path)
    outcome = attempt(forkserver, ["export", places["RUN"], "--out", "out"], tmp_path, seconds=120)
    check(outcome, codes=(0,))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


READERS = {
    "compare": "compare ONE OTHER --out ONE/compare",
    "status": "status RUN",
    "generate": "generate RUN --prompt The --tokens 2",
    "eval": "eval RUN --text TEXT",
    "analyze": "analyze spectrum RUN --sequences 2",
    "export": "export RUN --out OUT",
}


@pytest.mark.parametrize("command", READERS.values(), ids=READERS)
def test_a_run_can_be_read_while_it_is_running(
    command: str, places: dict[str, str], forkserver: Forkserver, tmp_path: Path
) -> None:
    """Results that go into its folder have folders of their own there."""
    for name in ("RUN", "ONE"):
        shutil.copytree(places[name], tmp_path / name)
    words = [{"OUT": "out"}.get(word, word) for word in command.split()]
    words = [str(places[word]) if word in ("OTHER", "TEXT") else word for word in words]
    with locked(tmp_path / "RUN"), locked(tmp_path / "ONE"):
        for name in ("RUN", "ONE"):
            (tmp_path / name / "state").write_text("running 3\n")
        check(attempt(forkserver, words, tmp_path, seconds=120), codes=(0,))

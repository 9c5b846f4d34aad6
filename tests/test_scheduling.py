"""A session of several workers ends, and says what happened, whatever a worker does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
from tests.scheduling import Scheduler

def pytest_xdist_make_scheduler(config, log):
    return Scheduler(config, log)
"""
DIES = "def test_first(): pass\n\ndef test_dies(): {how}\n\ndef test_last(): pass\n"
PASS = "import pytest\n\n@pytest.mark.parametrize('n', range(5))\ndef test_it(n): pass\n"


def session(folder: Path, number: int, how: str, *options: str) -> subprocess.CompletedProcess:
    """Two workers and five modules, in one of which a worker dies between two tests that pass."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / f"test_{number}.py").write_text("import os, time\n\n" + DIES.format(how=how))
    for other in {1, 2, 3, 4, 5} - {number}:
        (folder / f"test_{other}.py").write_text(PASS)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("module", [1, 5])  # with units left to hand out, and without
def test_a_worker_that_dies_is_one_failure_and_all_else_runs(tmp_path: Path, module: int) -> None:
    ended = session(tmp_path, module, "os._exit(3)")
    assert ended.returncode == 1
    assert f"crashed while running 'test_{module}.py::test_dies'" in ended.stdout
    assert "1 failed, 22 passed" in ended.stdout


def test_a_test_without_an_end_is_one_failure(tmp_path: Path) -> None:
    limits = ["-o", "faulthandler_timeout=5", "-o", "faulthandler_exit_on_timeout=true"]
    ended = session(tmp_path, 1, "time.sleep(1000)", *limits)
    assert "crashed while running 'test_1.py::test_dies'" in ended.stdout
    assert "1 failed, 22 passed" in ended.stdout
    assert "Timeout (0:00:05)!" in ended.stderr and "in test_dies" in ended.stderr

"""Tasks with local data, and other programs' view of the runs."""

from pathlib import Path

import pytest

from tests.evaluation.local_tasks import write_tasks


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")
    return write_tasks(tmp_path_factory.mktemp("tasks") / "tasks")

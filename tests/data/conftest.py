from pathlib import Path

import pytest

from mixit_titan.data import workers
from tests.data.tokens import stories, write_jsonl


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of 300 texts, in many batches."""
    monkeypatch.setattr(workers, "_BATCH", 400)
    return str(write_jsonl(tmp_path / "stories.jsonl", stories(300)))

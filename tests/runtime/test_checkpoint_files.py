"""An incomplete checkpoint is named and passed over."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.runtime.checkpoint_files import (
    clear,
    newest_complete,
    publish,
    put_back,
    unfinished,
)

from .conftest import STEPS, Runs


def _data(checkpoint: Path) -> Path:
    return next(checkpoint.glob("*.distcp"))


def change_metadata(checkpoint: Path, content: bytes, *, older: bool = False) -> None:
    (checkpoint / ".metadata").write_bytes(content)
    if older:  # than checksums
        (checkpoint / "checksums.json").unlink()


def cut_short(checkpoint: Path) -> None:
    content = _data(checkpoint).read_bytes()
    _data(checkpoint).write_bytes(content[:-100])


BREAK: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut short": (cut_short, "bytes"),
    "without its data": (lambda folder: _data(folder).unlink(), "has 0 of"),
    "without metadata": (lambda folder: (folder / ".metadata").unlink(), "it has no .metadata"),
    "with empty metadata": (
        lambda folder: change_metadata(folder, b""),
        "its .metadata is not as it was saved",
    ),
    "with empty metadata, older": (
        lambda folder: change_metadata(folder, b"", older=True),
        "its .metadata cannot be read",
    ),
    "with other metadata": (
        lambda folder: change_metadata(folder, b"\x80\x04K\x01.", older=True),  # a pickled 1
        "its .metadata cannot be read",
    ),
}


@pytest.mark.parametrize("how", BREAK)
def test_the_newest_complete_one_is_found(
    runs: Runs, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    whole = runs.folder("mixit") / "checkpoint" / f"step-{STEPS}"
    for step in (5, 15, 100):
        shutil.copytree(whole, tmp_path / f"step-{step}")
    shutil.copytree(whole, tmp_path / ".unfinished-200")
    assert newest_complete(tmp_path) == 100
    break_it, said = BREAK[how]
    break_it(tmp_path / "step-100")
    with caplog.at_level(logging.WARNING):
        assert newest_complete(tmp_path) == 15
    assert f"{tmp_path}/step-100" in caplog.text and said in caplog.text
    clear(tmp_path, 15)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".broken-100", "step-15", "step-5"]


def test_no_checkpoint_is_whole(tmp_path: Path) -> None:
    assert newest_complete(tmp_path / "nowhere") is None
    (tmp_path / "step-3").mkdir()
    assert newest_complete(tmp_path) is None


def _written(checkpoint: Path, content: str) -> None:
    unfinished(checkpoint).mkdir()
    (unfinished(checkpoint) / "content").write_text(content)


def test_a_kill_between_two_renames_loses_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, rename = tmp_path / "step-5", Path.rename
    _written(checkpoint, "first")
    publish(checkpoint)
    _written(checkpoint, "second")

    def killed(path: Path, target: Path) -> Path:
        if path == unfinished(checkpoint):
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "rename", killed)
        publish(checkpoint)
    assert not checkpoint.exists()
    put_back(tmp_path)
    assert (checkpoint / "content").read_text() == "first"
    assert not [*tmp_path.glob(".replaced-*")]


def test_a_checkpoint_is_published_where_a_kill_left_the_one_before(tmp_path: Path) -> None:
    checkpoint = tmp_path / "step-5"
    for content in ("first", "second", "third"):
        _written(checkpoint, content)
        publish(checkpoint)
        (tmp_path / ".replaced-5").mkdir()
        (tmp_path / ".replaced-5" / "content").write_text("older")
        put_back(tmp_path)
        assert (checkpoint / "content").read_text() == content

"""The product in C is compiled once, and missed with one sentence where it cannot be."""

import logging
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixit_titan.kernels.triangle import compiled_mix


@pytest.fixture(autouse=True)
def not_compiled_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled_mix.cache_clear()
    yield
    compiled_mix.cache_clear()


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


@needs_gcc
def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_mix() is not None
    (library,) = (tmp_path / "mixit_titan").iterdir()
    made = library.stat().st_mtime_ns
    compiled_mix.cache_clear()
    monkeypatch.setattr(subprocess, "run", None)  # nobody is asked again
    assert compiled_mix() is not None and library.stat().st_mtime_ns == made


@needs_gcc
def test_a_damaged_library_is_made_again(tmp_path: Path) -> None:
    assert compiled_mix() is not None
    (library,) = (tmp_path / "mixit_titan").iterdir()
    library.unlink()  # what is loaded must not be written over
    library.write_bytes(b"half of it")
    compiled_mix.cache_clear()
    assert compiled_mix() is not None and library.stat().st_size > 1000


@needs_gcc
def test_it_works_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiled_mix() is not None


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [("no_such_compiler", "No such file or directory"), ("false", "returned non-zero exit status")],
)
def test_without_a_compiler_the_log_says_so_once(
    compiler: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CC", compiler)
    with caplog.at_level(logging.WARNING):
        assert compiled_mix() is None and compiled_mix() is None
    (message,) = caplog.messages
    assert "needs a C compiler" in message and reason in message

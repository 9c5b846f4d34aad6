"""The product in C is compiled once, and missed with one sentence where it cannot be."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixit_titan.kernels.triangle import triangle_mix


@pytest.fixture(autouse=True)
def not_compiled_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    triangle_mix.cache_clear()
    yield
    triangle_mix.cache_clear()


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_it_is_compiled_once(tmp_path: Path) -> None:
    assert triangle_mix() is not None
    (library,) = (tmp_path / "mixit_titan").iterdir()
    made = library.stat().st_mtime_ns
    triangle_mix.cache_clear()
    os.environ["CC"] = "no_such_compiler"  # it is not asked again
    assert triangle_mix() is not None and library.stat().st_mtime_ns == made


@pytest.mark.parametrize(
    ("compiler", "reason"), [("no_such_compiler", "No such file"), ("false", "")]
)
def test_without_a_compiler_the_log_says_so_once(
    compiler: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CC", compiler)
    with caplog.at_level(logging.WARNING):
        assert triangle_mix() is None and triangle_mix() is None
    (message,) = caplog.messages
    assert "install a C compiler" in message and reason in message
    assert not list((tmp_path / "mixit_titan").iterdir())

"""Imports that do not look for garbage."""

import gc
import sys
from collections.abc import Iterator

import pytest

from mixit_titan.imports import quick_imports


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each freeze, whether garbage was being looked for. It is at first, which a Trainer of
    torchtitan in this process may have ended."""
    found: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: found.append(gc.isenabled()))
    enabled = gc.isenabled()
    gc.enable()
    yield found
    if not enabled:
        gc.disable()


def test_nothing_is_looked_through_until_all_is_imported(
    monkeypatch: pytest.MonkeyPatch, frozen: list[bool]
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with quick_imports():
        assert not gc.isenabled()
    assert gc.isenabled() and frozen == [False]
    with pytest.raises(ImportError), quick_imports():
        raise ImportError
    assert gc.isenabled() and len(frozen) == 1


def test_what_is_there_beside_torch_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, frozen: list[bool]
) -> None:
    """A command that is called where more than modules may be, such as in a test."""
    monkeypatch.setitem(sys.modules, "torch", sys)
    with quick_imports():
        assert gc.isenabled()
    assert gc.isenabled() and not frozen

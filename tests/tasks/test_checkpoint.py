"""Checkpoints of tasks that have valid checksums but are not what a run writes."""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.runtime.tensor_reader import is_as_saved
from mixit_titan.tasks.checkpoint import BEFORE, FILE, load_state, save_state

DESCRIBED = {"task": "x", "steps": 10}


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def saved(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A good checkpoint; or what `change` returns, or makes of it."""
    save_state(folder, *parts(), step=4, seconds=1.5, described=DESCRIBED)
    state = torch.load(folder / FILE, weights_only=True)
    torch.save(change(state) or state, folder / FILE)


def test_a_good_one_is_loaded(tmp_path: Path) -> None:
    saved(tmp_path, lambda state: None)
    assert load_state(tmp_path, *parts(), DESCRIBED) == (4, 1.5)


@pytest.mark.parametrize(
    "change",
    {
        "a list": lambda state: [1],
        "a number": lambda state: 3,
        "no model": lambda state: state.pop("model") and None,
        "a list of weights": lambda state: state.update(model=[1]),
        "no description": lambda state: state.update(described=7),
        "a step that was never": lambda state: state.update(step=11),
        "a step before the first": lambda state: state.update(step=-1),
        "a step that is no number": lambda state: state.update(step="4"),
        "no time": lambda state: state.update(seconds=float("nan")),
        "another shape": lambda state: state["model"].update(weight=torch.ones(5, 5)),
        "another average": lambda state: state["optimizer"]["state"][0].update(
            exp_avg=torch.ones(7)
        ),
        "a word as an average": lambda state: state["optimizer"]["state"][0].update(exp_avg="x"),
        "a word as betas": lambda state: state["optimizer"]["param_groups"][0].update(betas="x"),
        "no groups": lambda state: state["optimizer"].update(param_groups=[]),
    }.items(),
    ids=lambda change: change[0],
)
def test_what_no_run_writes_is_one_sentence(
    tmp_path: Path, change: tuple[str, Callable[[dict[str, Any]], Any]]
) -> None:
    saved(tmp_path, change[1])
    with pytest.raises(
        ConfigError, match=r"checkpoint.pt does not belong to this run: remove it to start"
    ):
        load_state(tmp_path, *parts(), DESCRIBED)


def test_it_is_on_disk_before_the_one_before_gives_up_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, lambda state: None)
    there: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda file: there.append((os.fstat(file).st_size, (tmp_path / BEFORE).exists())),
    )
    save_state(tmp_path, *parts(), step=5, seconds=1.5, described=DESCRIBED)
    assert there == [((tmp_path / FILE).stat().st_size, False)]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_one_sentence(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / FILE)
    with pytest.raises(ConfigError, match=r"checkpoint.pt cannot be used \(it is a"):
        load_state(tmp_path, *parts(), DESCRIBED)


def test_a_small_file_that_would_unpack_to_a_large_one_is_damaged() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2**24))
    assert not is_as_saved(packed)
    plain = io.BytesIO()
    torch.save({"a": torch.ones(3)}, plain)
    assert is_as_saved(plain)

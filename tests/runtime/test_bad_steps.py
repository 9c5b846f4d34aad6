"""Batches that are skipped, and runs that stop because of them."""

import contextlib
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from mixit_titan.config.run import _command_said
from mixit_titan.config.toml import fill
from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.runtime import late
from mixit_titan.runtime.bad_steps import LEAST, WINDOW, BadStep, BadSteps, Training
from mixit_titan.runtime.divergence import Diverged, explain, last_good_step
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import read_state
from mixit_titan.runtime.stop import Agreement
from mixit_titan.runtime.tensor_reader import TensorReader, load_state
from tests.forkserver import Forkserver

from . import bad_steps_worker
from .bad_steps_worker import LACKED, RUNS
from .conftest import STEPS


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, forkserver: Forkserver) -> dict[int, Path]:
    roots = {}
    for ranks, count in RUNS.items():
        roots[ranks] = tmp_path_factory.mktemp(f"bad_{ranks}")
        forkserver.run_ranks(ranks, count, bad_steps_worker.main, roots[ranks])
    return roots


def saved(run: Path, step: int = STEPS) -> dict[str, torch.Tensor]:
    """Weights, optimizer and random generators; and where schedule and loader are."""
    folder = run / "checkpoint" / f"step-{step}"
    entries = TensorReader(folder).read_metadata().state_dict_metadata
    state = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in entries.items()
        if isinstance(entry, TensorStorageMetadata) and name != "train_state.bad_steps"
    }
    assert sum("exp_avg_sq" in name for name in state) > 10
    counts = ("lr_scheduler.last_epoch", "train_state.step", "train_state.ntokens_seen")
    state |= dict.fromkeys((*counts, "dataloader.consumed"), 0)
    load_state(folder, state, no_dist=True)
    return {name: torch.as_tensor(value) for name, value in state.items()}


@pytest.mark.parametrize(
    ("ranks", "name"),
    [(1, "skipped"), (1, "spiked"), (2, "skipped"), (2, "spiked"), (2, "resumed"), (1, "older")],
)
def test_a_skipped_batch_might_as_well_not_have_been_there(
    runs: dict[int, Path], ranks: int, name: str
) -> None:
    """`older` has skipped none: it was resumed from a checkpoint that knows nothing of this."""
    ours, expected = (saved(runs[ranks] / each) for each in (name, "lacking"))
    assert ours.keys() == expected.keys()
    assert int(ours["dataloader.consumed"]) == 8 * (STEPS + len(LACKED))
    for key, value in expected.items():
        assert torch.equal(ours[key], value), key
    curves = [
        [
            (line["step"], line["loss"], line["grad_norm"], line["lr"], line["tokens"])
            for line in lines
        ]
        for lines in (
            read_metrics(runs[ranks] / each / "metrics.jsonl") for each in (name, "lacking")
        )
    ]
    assert curves[0] == curves[1] and len(curves[0]) == STEPS


@pytest.mark.parametrize("name", ["skipped", "spiked", "resumed"])
def test_what_was_skipped_is_counted(runs: dict[int, Path], name: str) -> None:
    lines = read_metrics(runs[2] / name / "metrics.jsonl")
    counted = [line.get("skipped_batches", 0) for line in lines]
    # Batch 15 is the one of step 14, because batch 6 was skipped.
    assert counted == [0] * 5 + [1] * 8 + [2] * 7
    state = read_state(runs[2] / name)
    assert state == ("finished", STEPS, "2 batches skipped")
    log = (runs[2] / name / "logs" / "rank_0.log").read_text()
    assert log.count("Skipped a batch at step 6: ") == 1
    assert log.count("Skipped a batch at step 14: ") == 1


def failures(root: Path, name: str) -> dict:
    """The same on both ranks, and in the state file."""
    ours, theirs = (json.loads((root / name / f"failed_{rank}").read_text()) for rank in range(2))
    assert ours == theirs
    state = read_state(root / name)
    assert state.word == "failed" and ours["said"].startswith(state.said)
    return ours


def test_too_many_in_a_row_or_in_all_end_the_run(runs: dict[int, Path]) -> None:
    said = failures(runs[2], "row")["said"]
    assert said.startswith("the loss is not finite at step 6, the last of 4 batches in a row. ")
    said = failures(runs[2], "all")["said"]
    assert said.startswith("the loss is not finite at step 6, the last of 4 batches in total. ")


def test_a_bad_step_ends_the_run_though_it_is_not_logged(runs: dict[int, Path]) -> None:
    """On one rank the gradient was not finite; nothing but the first step was to be logged."""
    failure = failures(runs[2], "stopped")
    checkpoint = runs[2] / "stopped" / "checkpoint" / "step-9"
    assert failure["said"] == (
        "the gradient norm is not finite at step 11. The last checkpoint from before that is "
        f"{checkpoint}: resume from it with a lower learning rate"
    )


def test_the_checkpoint_that_is_named_is_from_before_the_divergence(runs: dict[int, Path]) -> None:
    """That of step 8 is the first whose weights are too large, which the loss of step 9 shows. It
    and those up to step 13 are there, complete and finite."""
    folder = runs[2] / "diverging" / "checkpoint"
    assert {f"step-{step}" for step in range(7, 14)} <= {path.name for path in folder.iterdir()}
    failure = failures(runs[2], "diverging")
    assert failure["said"] == (
        "the loss is not finite at step 14, after the loss had been rising from step 9 on. The "
        f"last checkpoint from before that is {folder}/step-7: resume from it with a lower "
        "learning rate"
    )


def test_the_command_resumes_there_with_a_lower_rate(runs: dict[int, Path]) -> None:
    """At the same place in the data and the schedule, from the first step on: the optimizer that
    is loaded has the rate of the run before."""
    expected = read_metrics(runs[2] / "diverging" / "metrics.jsonl")
    lines = read_metrics(runs[2] / "again" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [8, 9]
    assert [line["step"] for line in expected][:8] == [*range(1, 9)]
    assert abs(lines[0]["loss"] - expected[7]["loss"]) < 1e-6
    assert lines[0]["tokens"] == expected[7]["tokens"]
    for rank in range(2):
        rates = json.loads((runs[2] / "again" / f"rates_{rank}").read_text())
        assert rates == {str(line["step"]): line["lr"] for line in lines}
    assert lines[0]["lr"] == expected[7]["lr"] / 2


def curve(*losses: float) -> dict[int, float]:
    return dict(enumerate(losses, start=1))


NOISY = [3 + 2 / step + random.Random(step).gauss(0, 0.05) for step in range(1, 301)]


@pytest.mark.parametrize(
    ("losses", "good"),
    [
        (curve(5.8, 1e10, 1e20, math.nan), 1),  # a rate of 1e30
        (curve(5.8, 1e10, 1e10, 1e10), 1),
        (curve(5.8, 5.5, 5.3, 6.5, 9.0, 30.0, math.nan), 3),
        (curve(5.8, 5.5, 5.3, 5.1, math.nan), 4),  # at once
        (curve(math.nan, math.nan), None),
        ({}, None),
    ],
)
def test_the_last_good_step(losses: dict[int, float], good: int | None) -> None:
    assert last_good_step(losses) == good


@pytest.mark.parametrize("rise", [1.05, 1.2, 2.0])
def test_the_last_good_step_of_a_noisy_curve(rise: float) -> None:
    """A rise from step 300 on, up to a plateau on which the run may stay for long."""
    risen = [min(NOISY[-1] * rise**n, 8.0) for n in range(1, 200)]
    good = last_good_step(curve(*NOISY, *risen))
    assert 290 <= good <= 305
    assert 295 <= last_good_step(curve(*NOISY)) <= 300  # it has not risen


def test_weights_without_a_gradient_are_not_good(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A norm that is not finite at step 3 is that of the weights of step 2, whose loss is."""
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 1)
    steps = BadSteps(Training(), Agreement(), torch.device("cpu"), loss_ranks=1)
    for step, (loss, norm) in enumerate([(5.0, 1.0), (4.9, 1.0), (4.8, math.nan)], start=1):
        steps.late.put(step, torch.tensor(loss), torch.tensor(norm))
        with contextlib.suppress(Diverged):
            steps.check()
    assert last_good_step(steps.curve.losses(tmp_path)) == 2


def test_advice_can_be_followed_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An absolute path, which torchtitan asks for; a rate and a folder that do not take a hundred
    rounds; no key twice."""
    monkeypatch.chdir(tmp_path)
    saved = Path("runs/x_lr_5/checkpoint")
    monkeypatch.setattr("mixit_titan.runtime.divergence.newest_complete", lambda *_, **__: 4)
    run = saved.parent
    failure = explain("it failed", curve(5.8, 5.7), run=run, checkpoints=saved, rate=1e30)
    assert failure.overrides == [
        *("--dump_folder", "runs/x_lr_0.01", "--optimizer.lr", "0.01"),
        *("--checkpoint.initial_load_path", str(tmp_path / saved / "step-4")),
        *("--checkpoint.initial_load_model_only", "false"),
    ]
    words = ["a.toml", "--optimizer.lr=1e30", "--dump_folder", str(run), "--training.steps", "9"]
    with pytest.raises(RunFailed) as said, _command_said(words, ["--nproc", "2"]):
        raise failure
    assert str(said.value).splitlines()[1].split() == [
        *("mixit-titan", "train", "a.toml", "--nproc", "2", "--training.steps", "9"),
        *failure.overrides,
    ]


def test_without_a_checkpoint_a_run_starts_again(tmp_path: Path) -> None:
    losses = curve(5.8, 1e10, math.nan)
    for folder in (tmp_path, None):
        failure = explain("it failed", losses, run=Path("runs/x"), checkpoints=folder, rate=1e-3)
        assert str(failure) == (
            "it failed, after the loss had been rising from step 2 on. There is no checkpoint from "
            "before that: start again with a lower learning rate"
        )
        assert failure.overrides == [
            "--dump_folder",
            "runs/x_lr_0.0005",
            "--optimizer.lr",
            "0.0005",
        ]


@pytest.mark.parametrize(
    "settings",
    [
        {"spike": 6.0},
        {"spike": 0.0, "on_bad_step": "skip"},
        {"spike": math.nan, "on_bad_step": "skip"},
        {"bad_steps_in_a_row": 0},
        {"bad_steps_in_all": -1},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict) -> None:
    (key,) = settings.keys() - {"on_bad_step"}
    with pytest.raises(ConfigError, match=f"training.{key}"):
        fill(Training, settings, section="training", where="a file")


def test_a_norm_that_is_not_finite_at_the_last_step_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 1)
    steps = BadSteps(Training(), Agreement(), torch.device("cpu"), loss_ranks=1)
    steps.late.put(7, torch.tensor(2.0), torch.tensor(math.nan))
    with pytest.raises(Diverged, match="the gradient norm is not finite at step 7"):
        steps.check_rest()
    steps.late.put(8, torch.tensor(2.0), torch.tensor(1.0))
    steps.check_rest()


def skipping(monkeypatch: pytest.MonkeyPatch, **settings: float) -> Callable[..., bool]:
    """Judges a step with this loss and norm, and says whether its batch is skipped."""
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 1)
    config = Training(on_bad_step="skip", **settings)
    steps = BadSteps(config, Agreement(), torch.device("cpu"), loss_ranks=1)

    def look(loss: float, norm: float = 1.0) -> bool:
        steps.add_loss(torch.tensor(loss))
        try:
            steps._look(1, torch.tensor(norm))
        except BadStep:
            return True
        finally:
            steps._loss = None
        return False

    return look


def test_a_spike_is_far_above_the_latest_good_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    look = skipping(monkeypatch, spike=6.0)
    assert not any(look(loss) for loss in [2.0, 2.0] + [9.0] * (LEAST - 2))  # too few are known
    assert not any(look(3.0 + 0.1 * (step % 2)) for step in range(WINDOW))
    # Their mean is 3.05 and their spread 0.05; those before are forgotten.
    assert not look(3.3) and look(3.5)
    assert look(3.0, norm=1.07) and not look(3.0, norm=1.05)  # of a norm without noise, 1%


def test_batches_in_a_row_are_those_without_a_good_one_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = skipping(monkeypatch, bad_steps_in_a_row=2)
    for _ in range(5):
        assert look(math.nan) and look(math.inf) and not look(2.0)
    assert look(math.nan) and look(2.0, norm=math.nan)
    with pytest.raises(Diverged, match="the last of 3 batches in a row"):
        look(math.nan)


def test_the_host_never_waits_for_the_step_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is done with a step when the next has been queued, and writes only then."""
    events = []

    class Event:
        waited = False

        def record(self) -> None:
            events.append(self)

        def synchronize(self) -> None:
            self.waited = True

    monkeypatch.setattr(late.torch, "get_device_module", lambda _: SimpleNamespace(Event=Event))
    empty = torch.empty
    monkeypatch.setattr(
        late.torch, "empty", lambda *size, pin_memory, **settings: empty(*size, **settings)
    )
    found = late.Late(torch.device("meta"))
    taken = []
    for step in range(1, 4):
        found.put(step, torch.tensor(float(step)), torch.tensor([10.0 * step]))
        taken.append(found.take())
        assert not events[-1].waited
    assert taken == [None, (1, [1.0, 10.0]), (2, [2.0, 20.0])]
    assert found.take() is None
    assert found.take(all_of_them=True) == (3, [3.0, 30.0]) and events[-1].waited
    assert found.take(all_of_them=True) is None

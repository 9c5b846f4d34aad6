"""Section: runs that must all have the same loss curve, on one GPU and on all, with and without
interruption."""

import functools
import shutil
import signal
import statistics
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from mixit_titan.gpu_check.check import (
    NEEDS_A_GPU,
    Check,
    Verdict,
    failed,
    passed,
    skipped,
)
from mixit_titan.gpu_check.process import Ended
from mixit_titan.gpu_check.runs import SECTION, Runs, Settings
from mixit_titan.gpu_check.scale import SAVED, STEPS
from mixit_titan.gpu_check.session import Session
from mixit_titan.runtime.run_state import read_state

TOLERANCE = 0.05
"""Allowed difference between the losses of two runs at every step: bfloat16, and another order of
sums."""
LEAST_FALL = 0.1
"""The least fall of the loss in a run, from ln(vocabulary) on."""
_STOP_AT = 12  # step
_NO_GRAPHS: Settings = {"training.disable_cuda_graphs": "true"}


def training(session: Session) -> Iterator[Check]:
    """Yield a check for each run, and for what happens to it."""
    runs, scale = Runs(session), session.scale
    one, everywhere = scale.on(1), scale.on(scale.ranks)
    many = scale.ranks > 1
    base = "all" if many else "one"
    curve = functools.partial(_curve, runs)

    def graphs_off(name: str, ranks: int, like: str) -> Verdict:
        return NEEDS_A_GPU if scale.rehearsal else curve(name, ranks, _NO_GRAPHS, like=like)

    work: dict[str, Callable[[], Verdict]] = {
        one: lambda: curve("one", 1),
        f"{one}, no CUDA graphs": lambda: graphs_off("one_no_graphs", 1, "one"),
        f"{one}, drawn matrices": lambda: curve("one_drawn", 1, _storage("generated"), like="one"),
    }
    on_all: dict[str, Callable[[], Verdict]] = {
        everywhere: lambda: curve("all", scale.ranks, like="one"),
        f"{everywhere}, no CUDA graphs": lambda: graphs_off("all_no_graphs", scale.ranks, "all"),
        f"{everywhere}, sharded matrices": lambda: curve(
            "all_sharded", scale.ranks, _storage("sharded"), like="all"
        ),
    }
    work |= on_all if many else {"all GPUs": lambda: skipped("there is one GPU")}
    work[f"resume from step {SAVED}"] = lambda: _resumed(runs, base)
    broken = functools.cache(lambda: _stopped(runs, base))
    for name in ("asynchronous save", "SIGTERM", "resume after SIGTERM"):
        work[name] = lambda name=name: broken()[name]
    states = set()
    for name, verdict in work.items():
        check = session.check(SECTION, name, verdict)
        states.add(check.state)
        yield check
    if "fail" not in states:
        runs.remove_checkpoints()  # some gigabytes each


def _storage(form: str) -> Settings:
    return {"model.mixing.storage": form}


def _curve(
    runs: Runs, name: str, ranks: int, changed: Settings | None = None, *, like: str | None = None
) -> Verdict:
    """Train a run from beginning to end, and compare its curve with that of another one."""
    ended = runs.train(name, ranks, changed)
    if not runs.finished(name):
        return failed(ended)
    lines = runs.steps(name)
    fall = lines[0]["loss"] - lines[-1]["loss"]
    if [line["step"] for line in lines] != [*range(1, STEPS + 1)]:
        return failed(f"{len(lines)} steps are in metrics.jsonl, not {STEPS}", **_figures(lines))
    if not fall > LEAST_FALL:  # also if it is NaN
        said = f"the loss fell by {fall:.3f} in {STEPS} steps, not by {LEAST_FALL}"
        return failed(said, **_figures(lines))
    if like is None:
        said = f"loss {lines[0]['loss']:.3f} to {lines[-1]['loss']:.3f}"
        return passed(said, **_figures(lines))
    return _compare(runs, name, like)


def _compare(runs: Runs, name: str, like: str, first: int = 1) -> Verdict:
    lines = runs.steps(name)
    if not runs.finished(like):
        return skipped("trained, but there is no other run to compare with", **_figures(lines))
    ours, other = ({line["step"]: line["loss"] for line in runs.steps(n)} for n in (name, like))
    missing = [step for step in range(first, STEPS + 1) if step not in ours.keys() & other.keys()]
    if missing:
        return failed(f"no loss of step {missing[0]} is in metrics.jsonl", **_figures(lines))
    apart = [abs(ours[step] - other[step]) for step in range(first, STEPS + 1)]
    difference = max(apart)
    figures = {**_figures(lines), "difference": difference}
    unbroken = runs.scale.on(1 if like == "one" else runs.scale.ranks)
    said = f"losses within {difference:.4f} of those on {unbroken}"
    if all(each < TOLERANCE for each in apart):  # none of them is NaN
        return passed(said, **figures)
    return failed(f"{said}, not within {TOLERANCE}", **figures)


def _figures(lines: list[dict[str, Any]]) -> dict[str, Any]:
    late = lines[len(lines) // 2 :]
    if not late:
        return {}
    return {
        "loss": lines[-1]["loss"],
        "tokens_per_s": statistics.median(line["tokens_per_s"] for line in late),
        "mfu_percent": late[-1].get("mfu_percent"),
        "memory_gib": max(line["memory_gib"] for line in lines),
    }


def _resumed(runs: Runs, base: str) -> Verdict:
    """Resume as after a kill: a folder with the checkpoint and nothing newer."""
    if problem := runs.incomplete(base, SAVED):
        return failed(problem)
    name = "resumed"
    shutil.rmtree(runs.folder(name), ignore_errors=True)
    shutil.copytree(runs.checkpoint(base, SAVED), runs.checkpoint(name, SAVED))
    ended = runs.start(name, runs.scale.ranks, {})
    if not runs.finished(name):
        return failed(ended)
    steps = [line["step"] for line in runs.steps(name)]
    if steps[:1] != [SAVED + 1]:
        return failed(f"it began with step {steps[:1]}, not {SAVED + 1}")
    return _compare(runs, name, base, SAVED + 1)


def _stopped(runs: Runs, base: str) -> dict[str, Verdict]:
    """Check a run that saves while it trains, is asked to stop, and is started again."""
    name, mode = "stopped", runs.scale.async_mode
    settings = {"checkpoint.async_mode": mode, "checkpoint.interval": 10}
    folder = runs.folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    sent: list[int] = []

    def stop(process: subprocess.Popen) -> None:
        state = read_state(folder)
        if not sent and state is not None and state.step >= _STOP_AT:
            sent.append(state.step)
            process.send_signal(signal.SIGTERM)

    ended = runs.start(name, runs.scale.ranks, settings, watch=stop)
    saved = runs.incomplete(name, 10)
    found = {
        "asynchronous save": failed(f"{saved} ({ended})") if saved else passed("complete"),
        "SIGTERM": _judge_stop(runs, name, ended, sent),
    }
    if found["SIGTERM"].state == "fail":
        return found | {"resume after SIGTERM": skipped("the run did not stop as it should")}
    ended = runs.start(name, runs.scale.ranks, settings)
    resumed = _compare(runs, name, base) if runs.finished(name) else failed(ended)
    return found | {"resume after SIGTERM": resumed}


def _judge_stop(runs: Runs, name: str, ended: Ended, sent: list[int]) -> Verdict:
    state = read_state(runs.folder(name))
    if not sent:
        return failed(f"the run ended before it was asked to: {ended}")
    if state is None or state.word != "stopped":
        return failed(f"after SIGTERM at step {sent[0]} the run did not stop: {ended}")
    if ended.code != 128 + signal.SIGTERM:
        return failed(f"it ended with {ended} instead of {128 + signal.SIGTERM}")
    if problem := runs.incomplete(name, state.step):
        return failed(problem)
    if f"exiting after step {state.step}, saved" not in runs.log(name).read_text():
        return failed("it stopped and saved, but did not say so")
    return passed(f"asked at step {sent[0]}, saved at step {state.step}")

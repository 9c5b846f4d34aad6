"""A simulated node of eight GPUs: functions stand in for everything that the command starts."""

import json
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mixit_titan.gpu_check import command, doctor, runs, session, tests, throughput
from mixit_titan.gpu_check.process import Case, Ended
from mixit_titan.gpu_check.scale import STEPS
from mixit_titan.runtime.run_state import StateFile

H100S = {
    "mixit_titan": "0.1.0",
    "commit": "0123456789ab",
    "changes": None,
    "torch": "2.13.0+cu130",
    "torchtitan": "0.3.0",
    "python": "3.12.3",
    "device": "NVIDIA H100 80GB HBM3",
    "cores": 192,
    "gpus": 8,
    "gpu_memory_bytes": 84929347584,
    "compute_capability": "9.0",
    "peak_flops": 989e12,
}
DOCTOR = {
    "ok": True,
    "checks": [
        {"name": "torch", "state": "ok", "fact": "2.13.0+cu130, as tested", "advice": ""},
        {"name": "disk", "state": "warning", "fact": "runs: 80 MiB/s", "advice": "another disk"},
    ],
}
NODE_IDS = ["tests/gpu/test_gpu.py::test_kernels[64]", "tests/gpu/test_gpu.py::test_kernels[128]"]
NODE_IDS += ["tests/gpu/test_bench.py::test_bench"]
DONE = Ended(0, "done", 60.0)


class Node:
    """What a test may change of it."""

    def __init__(self) -> None:
        self.machine = dict(H100S)
        self.answer: Callable[[Case], Case | Ended] = usual_answer
        self.losses: dict[str, Callable[[int], float]] = {}
        """Name of a run -> its curve, where it is not the usual one."""
        self.dies: set[str] = set()
        """Runs that end with an error."""
        self.started: list[str] = []
        self.junit: Callable[[str], str | None] = lambda name: '<testcase {} time="1"/>'
        """Name of a test -> its element in pytest's XML; None: the process was killed."""

    def cases(
        self, worker: str, cases: Sequence[Case], *rest: Any
    ) -> Iterator[tuple[Case, Case | Ended, float]]:
        self.started += [worker] * bool(cases)
        for case in cases:
            yield case, self.answer(case), 2.0

    def doctor(self, line: list[str], log: Path, limit: float) -> Ended:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(json.dumps(DOCTOR))
        return DONE

    def pytest(self, log: Path, *arguments: str) -> Ended:
        if "--collect-only" in arguments:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("\n".join([*NODE_IDS, "", "3 tests collected"]))
            return DONE
        results, *names = arguments
        elements = []
        for node in (n for n in NODE_IDS if n.split("[")[0] in names):
            file, _, name = node.partition("::")
            words = f'classname="{file.removesuffix(".py").replace("/", ".")}" name="{name}"'
            if (element := self.junit(node)) is None:
                return Ended(-11, "Fatal Python error: Segmentation fault", 5.0)
            elements.append(element.format(words))
        Path(results.removeprefix("--junitxml=")).write_text(
            f"<testsuites><testsuite>{''.join(elements)}</testsuite></testsuites>"
        )
        return DONE

    def train(
        self, these: runs.Runs, name: str, ranks: int, changed: dict, watch: Callable | None = None
    ) -> Ended:
        self.started.append(name)
        folder = these.folder(name)
        state = StateFile(str(folder))
        these.log(name).write_text("exiting after step 13, saved")
        if name in self.dies:
            return Ended(1, "torch.OutOfMemoryError: CUDA out of memory", 30.0)
        if watch is not None:
            state.write("running", 12)
            sent: list[int] = []
            watch(SimpleNamespace(send_signal=sent.append))
            assert sent == [signal.SIGTERM]
            state.write("stopped", 13, "saved")
            return Ended(143, "stopped", 40.0)
        curve = self.losses.get(name, lambda step: 11.8 - math.log(step) / 2)
        first = 21 if name == "resumed" else 1
        lines = [
            {"step": s, "loss": curve(s), "tokens_per_s": ranks * 3e5, "memory_gib": 24.0}
            for s in range(first, STEPS + 1)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
        for step in (10, 20):
            these.checkpoint(name, step).mkdir(parents=True, exist_ok=True)
        state.write("finished", STEPS)
        return DONE

    def bench(self, line: list[str], log: Path, limit: float) -> Ended:
        ranks = int(line[line.index("--nproc") + 1])
        names = line[line.index("--variants") + 1 : line.index("--nproc")]
        rows = [
            {
                "variant": name,
                "tokens_per_s": ranks * (300e3 + 1e4 * n),
                "ratio": 1 + n / 30,
                "mfu": 0.4,
                "peak_memory_bytes": 16 * 2**30,
            }
            for n, name in enumerate(names)
        ]
        out = Path(line[line.index("--out") + 1])
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_text(json.dumps({"variants": rows}))
        return DONE


def usual_answer(case: Case) -> Case:
    if "mixer" in case:
        return {"milliseconds": 0.5}
    ways = ("whole rows, forward", "whole rows, backward", "documents, forward")
    return {way: {"largest": 0.007, "norm": 0.003} for way in ways}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node()
    monkeypatch.setattr(command, "_machine", lambda out: node.machine)
    monkeypatch.setattr(session, "run_cases", node.cases)
    monkeypatch.setattr(doctor, "run", node.doctor)
    monkeypatch.setattr(tests, "_pytest", node.pytest)
    monkeypatch.setattr(throughput, "run", node.bench)
    monkeypatch.setattr(
        runs.Runs,
        "start",
        lambda self, name, ranks, changed, **watch: node.train(self, name, ranks, changed, **watch),
    )
    monkeypatch.setattr(
        runs, "problem_of", lambda path: None if path.is_dir() or "stopped" in str(path) else "none"
    )
    return node

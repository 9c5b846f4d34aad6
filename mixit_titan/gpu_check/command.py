"""`python -m mixit_titan.gpu_check`: every section in turn, and a report that grows with them."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixit_titan.errors import ConfigError, one_sentence, unknown
from mixit_titan.files import writing
from mixit_titan.gpu_check.check import Check, failed
from mixit_titan.gpu_check.doctor import doctor
from mixit_titan.gpu_check.memory import memory
from mixit_titan.gpu_check.parity import parity
from mixit_titan.gpu_check.process import module, run
from mixit_titan.gpu_check.report import JSON, MARKDOWN, Report, read_checks
from mixit_titan.gpu_check.scale import Scale, on_gpus, rehearsal
from mixit_titan.gpu_check.session import Session
from mixit_titan.gpu_check.tests import tests
from mixit_titan.gpu_check.throughput import throughput
from mixit_titan.gpu_check.times import times
from mixit_titan.gpu_check.training import training
from mixit_titan.gpus import hide_gpus
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.process import terminated_as_interrupted
from mixit_titan.options import read_options

SECTIONS: dict[str, Callable[[Session], Iterator[Check]]] = {
    "doctor": doctor,
    "tests": tests,
    "parity": parity,
    "times": times,
    "training": training,
    "memory": memory,
    "throughput": throughput,
}
_SECONDS = 300  # to find out about the machine


@dataclass
class Arguments:
    """Check everything that only a GPU can show, and write one report. Called again, it resumes:
    what has passed is kept while code and machine stay the same.

    Example: python -m mixit_titan.gpu_check --out runs/gpu_check
    """

    out: Path = Path("runs/gpu_check")
    """Folder for gpu_report.md, gpu_report.json, and the output of everything that is run."""
    rehearse: bool = False
    """Without a GPU: run the same code on the CPU, with gloo, Triton's interpreter and toy
    sizes."""
    only: tuple[str, ...] = ()
    """Sections to run: doctor, tests, parity, times, training, memory, throughput."""


def main() -> None:
    """Run the checks of the command line, and exit with code 1 if one has failed."""
    with one_sentence():
        args = read_options(Arguments, sys.argv[1:], prog="python -m mixit_titan.gpu_check")
        for name in args.only:
            if name not in SECTIONS:
                raise unknown("section in --only", name, SECTIONS)
        if args.rehearse:
            hide_gpus()  # in all processes that are started, too
            # Models this small gain nothing from more threads, and ranks must not compete for
            # cores.
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        with locked(args.out), terminated_as_interrupted():
            report = run_checks(args)
        print(f"{report.counted()}. The report is {args.out / MARKDOWN}: paste it into an issue,")
        print(f"and attach {JSON} from the same folder: it has every figure. Logs are there, too")
        sys.exit(1 if report.count()["failed"] else 0)


def run_checks(args: Arguments) -> Report:
    """Run every section, and return the report, which is written after each check."""
    machine = _machine(args.out)
    scale = _scale(args, machine)
    report = Report(scale, machine, read_checks(args.out, scale, machine))
    if not report.checks:  # what is here comes from other code or another machine
        for name in SECTIONS:
            shutil.rmtree(args.out / name, ignore_errors=True)
    earlier = [*report.checks]
    session = Session(args.out, scale, earlier)
    for name, section in SECTIONS.items():
        if args.only and name not in args.only:
            continue
        said = set()
        for check in _guarded(session, name, section):
            said.add(check.name)
            report.replace(check)
            print(f"{check.state:7}  {name:10}  {check.name}: {check.said}", flush=True)
            if check not in earlier:
                _write(report, args.out)
        report.keep_only(name, said)
    _write(report, args.out)
    return report


def _write(report: Report, out: Path) -> None:
    with writing(out):
        report.write(out, [*SECTIONS])


def _guarded(
    session: Session, name: str, section: Callable[[Session], Iterator[Check]]
) -> Iterator[Check]:
    """An error in a section's own code must not end the other sections."""
    try:
        yield from section(session)
    except Exception as error:
        yield session.judged(name, "the section", failed(f"{type(error).__name__}: {error}"))


def _machine(out: Path) -> dict[str, Any]:
    log = out / "machine.txt"
    ended = run(module("mixit_titan.gpu_check.machine"), log, _SECONDS)
    if ended.code != 0:
        raise ConfigError(ended.last.removeprefix("mixit-titan: "))
    return json.loads(log.read_text().splitlines()[-1])


def _scale(args: Arguments, machine: dict[str, Any]) -> Scale:
    if args.rehearse:
        return rehearsal()
    if not machine["gpus"]:
        raise ConfigError(
            "this machine has no GPU: run this on a GPU node (slurm/test_gpu.sbatch), or rehearse "
            "it on the CPU with --rehearse (make test-gpu REHEARSE=1)"
        )
    return on_gpus(machine["gpus"], machine["device"])

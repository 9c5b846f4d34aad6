"""`mixit-titan doctor`: every check, one per line, or as JSON."""

import dataclasses
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.doctor.check import Check, guarded
from mixit_titan.doctor.disk import check_disk, read_disk
from mixit_titan.doctor.graphics import Graphics, graphics, read_graphics
from mixit_titan.doctor.machine import machine, read_machine
from mixit_titan.doctor.software import software
from mixit_titan.doctor.surroundings import check_environment, check_hub, check_slurm, read_slurm
from mixit_titan.files import json_text
from mixit_titan.gpus import Gpus


@dataclass
class DoctorArguments:
    """Check whether this machine is fit for training: versions, GPUs, limits, disk, Slurm. The exit
    code is 1 if something is wrong. The report names neither host nor user.

    Example: mixit-titan doctor --folder runs
    """

    folder: Path = Path("runs")
    """Where runs will be written: up to 64 MiB are written there and removed again."""
    json: bool = False
    """Print JSON."""


def run_doctor(args: DoctorArguments) -> None:
    """Print the report; exit with code 1 if something is wrong."""
    checks = examine(args.folder)
    wrong = any(check.state == "wrong" for check in checks)
    if args.json:
        found = [dataclasses.asdict(check) for check in checks]
        print(json_text({"checks": found, "ok": not wrong}, indent=2))
    else:
        print("\n".join(report(checks)))
    if wrong:
        sys.exit(1)


def examine(folder: Path) -> list[Check]:
    """All checks. Never raises: what cannot be checked is a warning."""
    facts = Graphics(Gpus(0))
    checks = []

    def look() -> Iterable[Check]:
        nonlocal facts
        facts = read_graphics()
        return graphics(facts)

    checks += guarded("gpus", look)
    gpus = len(facts.usable)
    parts = {
        "software": lambda: software(gpus),
        "machine": lambda: machine(read_machine(gpus)),
        "disk": lambda: [check_disk(read_disk(folder))],
        "slurm": lambda: check_slurm(read_slurm(gpus)),
        "environment": lambda: [check_environment(os.environ), check_hub(os.environ)],
    }
    found = {name: guarded(name, work) for name, work in parts.items()}
    return [*found.pop("software"), *checks, *(c for part in found.values() for c in part)]


def report(checks: list[Check]) -> list[str]:
    """The report, one line per check, and a summary."""
    width = max(len(check.name) for check in checks)
    lines = [
        f"{check.state:7}  {check.name:{width}}  {check.fact}"
        + (f": {check.advice}" if check.advice else "")
        for check in checks
    ]
    count = {s: sum(check.state == s for check in checks) for s in ("warning", "wrong")}
    warnings = f"{count['warning'] or 'no'} warning{'' if count['warning'] == 1 else 's'}"
    return [*lines, f"{count['wrong'] or 'nothing'} wrong, {warnings}"]

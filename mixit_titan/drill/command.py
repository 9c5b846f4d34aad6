"""`mixit-titan drill CONFIG.toml`: rehearses what can go wrong with a run, on the machines where it
will run."""

import contextlib
import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from mixit_titan.config.job import TRAINING_MODULES
from mixit_titan.device import has_gpu
from mixit_titan.drill import report
from mixit_titan.drill.arguments import DrillArguments
from mixit_titan.drill.faults import FAULTS
from mixit_titan.drill.local_run import LocalRun
from mixit_titan.drill.run import Run, Setup
from mixit_titan.drill.setup import write_setup
from mixit_titan.drill.slurm_run import SlurmRun
from mixit_titan.drill.trial import TRIAL, Trial, try_fault
from mixit_titan.errors import ConfigError, Problems, RunFailed, unknown
from mixit_titan.files import write_json
from mixit_titan.jobs import process
from mixit_titan.jobs.lock import locked
from mixit_titan.options import flag, read_known_options
from mixit_titan.reading import json_if_good, read_json
from mixit_titan.runtime.launch import local_ranks
from mixit_titan.slurm.arguments import SubmitArguments, check_numbers
from mixit_titan.slurm.cluster import check_sbatch

_UNBROKEN = "unbroken"


@dataclass(frozen=True, kw_only=True)
class Drill:
    """What to rehearse, and where."""

    setup: Setup
    kind: type[Run]
    make: Callable[[Path], Run]
    """Creates a run in that folder."""
    exact: bool
    """Whether two uninterrupted runs are identical to the last bit."""
    described: dict[str, Any]
    """Everything that results depend on, as plain data."""


def run_drill(args: DrillArguments, others: list[str]) -> None:
    """Rehearse all faults that have not passed, write the report, and say what to type next.
    `others` are overrides and, with --slurm, options of `submit`."""
    for name in args.only:
        if name not in FAULTS:
            raise unknown("fault", name, FAULTS)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a toy gains nothing from more
    console = Console()
    with locked(args.out):
        drill = _on_slurm(args, others) if args.slurm else _here(args, others)
        _check_same(args.out, drill.described)
        process.preload(TRAINING_MODULES)
        with process.terminated_as_interrupted():
            _train_unbroken(drill, args.out, console)
            for name in args.only or FAULTS:
                _rehearse(drill, name, args.out, console)
        trials = [trial for name in FAULTS if (trial := _read(args.out / name)) is not None]
        report.write(args.out, trials, drill.setup)
    console.print(report.screen(trials, drill.setup))
    for line in report.explanations(trials):
        console.print(line, soft_wrap=True, highlight=False)
    console.print(f"wrote {args.out / 'drill.json'}", soft_wrap=True)
    _say_what_next(args, others, trials)


def _here(args: DrillArguments, others: list[str]) -> Drill:
    ranks = local_ranks(args.nproc)
    toy = args.out.absolute() / "toy.toml"
    sizes = {"steps": LocalRun.STEPS, "ranks": ranks, "fewer": ranks - 1}
    setup = write_setup(args.config, others, toy, **sizes, on_gpus=None)
    return Drill(
        setup=setup,
        kind=LocalRun,
        make=lambda home: LocalRun(setup, home),
        exact=not has_gpu(),
        described={"toy": toy.read_text(), "overrides": others, "ranks": ranks},
    )


def _on_slurm(args: DrillArguments, others: list[str]) -> Drill:
    if args.nproc is not None:
        raise ConfigError("--nproc applies to this machine: with --slurm, set --nodes instead")
    check_sbatch()
    submission, overrides = read_known_options(
        SubmitArguments, [args.config, *others], prog="mixit-titan drill --slurm"
    )
    check_numbers(submission, Problems())
    for name in ("dry_run", "array_variants", "after"):
        if getattr(submission, name):
            raise ConfigError(f"{flag(name)} is only for submit: leave it out of a drill")
    nodes, gpus = submission.nodes, submission.gpus_per_node
    of_a_node = max(gpus, 1)
    ranks = nodes * of_a_node
    fewer = ranks - (of_a_node if nodes > 1 else 1)
    toy = args.out.absolute() / "toy.toml"
    sizes = {"steps": SlurmRun.STEPS, "ranks": ranks, "fewer": fewer}
    setup = write_setup(args.config, overrides, toy, **sizes, on_gpus=gpus > 0)
    return Drill(
        setup=setup,
        kind=SlurmRun,
        make=lambda home: SlurmRun(setup, home, submission),
        exact=gpus == 0,
        described={"toy": toy.read_text(), "overrides": overrides, "slurm": asdict(submission)},
    )


def _check_same(out: Path, described: dict[str, Any]) -> None:
    file = out / "settings.json"
    with contextlib.suppress(FileNotFoundError):
        if read_json(file, dict) == described:
            return
        raise ConfigError(f"{out} contains a drill with other settings: choose another --out")
    for name in (_UNBROKEN, *FAULTS):  # each is emptied before it is run in
        if (out / name).exists():
            raise ConfigError(f"{out / name} was not written by a drill: choose another --out")
    write_json(file, described)


def _train_unbroken(drill: Drill, out: Path, console: Console) -> None:
    home = out / _UNBROKEN
    if (home / "done").exists():
        return
    console.print("the uninterrupted run ...")
    shutil.rmtree(home, ignore_errors=True)
    run = drill.make(home)
    try:
        run.start()
        run.wait_for_finish()
    finally:
        run.close()
    (home / "done").touch()


def _rehearse(drill: Drill, name: str, out: Path, console: Console) -> None:
    """Rehearse one fault, unless it has passed before."""
    fault, home, before = FAULTS[name], out / name, _read(out / name)
    if before is not None and before.outcome == "passed":
        console.print(f"{fault.title}: passed before")
        return
    why = fault.impossible(drill.setup, drill.kind)
    if why is not None:
        trial = Trial(fault=name, outcome="skipped", why=why)
    else:
        console.print(f"{fault.title} ...")
        unbroken = out / _UNBROKEN / "run"
        trial = try_fault(name, fault, lambda: drill.make(home), unbroken, exact=drill.exact)
    write_json(home / "trial.json", trial.described())


def _read(home: Path) -> Trial | None:
    found = json_if_good(home / "trial.json", TRIAL)
    return None if found is None else Trial(**{key: found[key] for key in TRIAL})


def _say_what_next(args: DrillArguments, others: list[str], trials: list[Trial]) -> None:
    failed = [trial.fault for trial in trials if trial.outcome == "failed"]
    if failed:
        raise RunFailed(
            f"the run did not recover from {len(failed)} of {len(trials)} faults "
            f"({', '.join(failed)}): their logs are in {args.out}. Run the same command again to "
            "repeat them"
        )
    own = [] if args.nproc is None else ["--nproc", str(args.nproc)]
    command = "submit" if args.slurm else "train"
    print("The run recovered from every fault. Next, the run itself:")
    print(f"  {shlex.join(['mixit-titan', command, args.config, *own, *others])}")

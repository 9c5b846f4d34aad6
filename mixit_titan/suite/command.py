"""`mixit-titan suite NAME`: a family of synthetic tasks for several stacks."""

import shlex
import sys
from pathlib import Path

from rich.console import Console

from mixit_titan.errors import RunFailed
from mixit_titan.jobs.job import Job
from mixit_titan.jobs.lock import locked
from mixit_titan.jobs.runner import Runner
from mixit_titan.options import check_named, check_once, read_options, typed
from mixit_titan.suite.cells import Cell
from mixit_titan.suite.plan import SuiteArguments, suite_cells
from mixit_titan.suite.report import write_report
from mixit_titan.tasks.command import find_device
from mixit_titan.tasks.job import TASK_MODULES
from mixit_titan.tasks.options import run_words, typed_settings


def suite_command(arguments: list[str]) -> None:
    """Run what is missing of a suite, report it, and print what to type next."""
    check_once(arguments, ("--stacks", "--only", "--grid", "--set"))
    for name in ("--stacks", "--only", "--grid", "--set"):
        check_named(arguments, name)
    args = read_options(SuiteArguments, arguments, prog="mixit-titan suite")
    own = {"variant": "--stacks", "stack": "--stacks", "layers": "--layers"}
    with typed(typed_settings(args.tried, **own)):
        cells = suite_cells(args)
    if args.list:
        _print_commands(args, cells)
        return
    find_device(args.device)  # a missing device is one error here, not one per run
    with locked(args.folder):
        failed = _run(cells, args.jobs)
        console = Console(width=None if Console().is_terminal else 200)
        write_report(args, cells, failed, console)
    _raise_if_incomplete(cells, failed)
    said = [
        f"Next: run the same command with --seeds {args.seeds + 1} to add a seed to every cell."
    ]
    attending = [cell for cell in cells if cell.attention]
    if attending:
        folder = attending[0].reported(failed)[0].folder
        said.append(f"See what a model attends to: mixit-titan analyze attention {folder}")
    for line in said:
        console.print(line, soft_wrap=True, markup=False)


def _run(cells: list[Cell], at_a_time: int) -> set[Path]:
    """Run the searches, then the reported seeds; returns the folders of failed runs."""
    failed: set[Path] = set()
    known: set[Path] = set()
    while True:
        jobs = _jobs(cells, failed)
        if {job.folder for job in jobs} <= known:
            return failed
        known = {job.folder for job in jobs}
        runner = Runner(
            [job for job in jobs if job.folder not in failed],
            at_a_time=at_a_time,
            preload=TASK_MODULES,
        )
        runner.run()
        failed |= runner.failed.keys()


def _jobs(cells: list[Cell], failed: set[Path]) -> list[Job]:
    """All jobs that can be started now."""
    searched = [job for cell in cells for job in cell.searched()]
    return searched + [job for cell in cells for job in cell.reported(failed)]


def _raise_if_incomplete(cells: list[Cell], failed: set[Path]) -> None:
    """A point of the grid may fail, as when a learning rate diverges; a reported run may not."""
    missing = [cell for cell in cells if len(cell.figures(failed)) < len(cell.seeds)]
    if missing:
        jobs = [job for cell in missing for job in [*cell.searched(), *cell.reported(failed)]]
        logs = ", ".join(str(job.log) for job in jobs if job.folder in failed)
        raise RunFailed(f"{len(missing)} of {len(cells)} cells are incomplete: see {logs}")


def _print_commands(args: SuiteArguments, cells: list[Cell]) -> None:
    jobs = {job.folder: job for job in _jobs(cells, set())}
    left = [job for job in jobs.values() if job.result is None]
    for job in left:
        run, folder = job.arguments
        print(shlex.join(["task", *run_words(run, args.scale), "--out", str(folder)]))
    if not left:
        said = "All runs are finished. Next: the same command without --list reports them."
    elif any(not cell.reported(()) for cell in cells):
        said = "These runs choose the settings. Once they are finished, --list prints the rest."
    else:
        said = "Next: once these are finished, the same command without --list reports them."
    print(said, file=sys.stderr)

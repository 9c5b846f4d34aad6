"""`mixit-titan status`: a table of runs, from what they leave in their folders and from squeue."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console

from mixit_titan.errors import ConfigError
from mixit_titan.jobs.lock import owner_lives
from mixit_titan.reading import read_text, text_if_good
from mixit_titan.runtime.checkpoint_files import hugging_face_steps, newest_complete
from mixit_titan.runtime.goodput import goodput
from mixit_titan.runtime.heartbeat import heartbeat_file, read_heartbeats
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import read_state
from mixit_titan.tables import literal, screen_table

T = TypeVar("T")

_JOB_BYTES = 256
_BEATS_MISSED, _SILENT = 12.0, 90.0  # seconds; a network file system may show old times


@dataclass
class StatusArguments:
    """Show the state of runs: step, loss, tokens/s, restarts, last checkpoint and goodput, the
    share of the time that was training.

    Example: mixit-titan status runs/160m_fineweb_edu_mixit
    """

    folders: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER ...")] = (
        field(default_factory=list)
    )
    """Folders of runs (default: all in runs/)."""


@dataclass
class Status:
    """One row of the table."""

    folder: str
    state: str
    step: str
    loss: str
    tokens_per_s: str
    restarts: str
    checkpoint: str
    goodput: str
    """The share of the run's time that was training."""
    said: str


def show_status(args: StatusArguments) -> None:
    """Print the table, and what each run has to say below it."""
    folders = [Path(name) for name in args.folders] or _all_runs()
    for folder in folders:
        if not _is_run(folder):
            has_some = any(map(_is_run, folder.glob("*/")))
            runs = f": name those in it, {folder}/*" if has_some else ""
            raise ConfigError(f"{folder} is not a run folder{runs}")
    answers = _slurm_answers()
    statuses = [run_status(folder, answers) for folder in folders]
    header = ("run", "state", "step", "loss", "tokens/s", "restarts", "checkpoint", "goodput")
    rows = [[literal(cell) for cell in vars(s).values()][: len(header)] for s in statuses]
    table = screen_table(None, header, rows, left=len(header), box=None, pad_edge=False)
    # Where the output is not a terminal, no column is truncated.
    console = Console(width=None if os.isatty(1) else 1000)
    console.print(table)
    for status in statuses:
        if status.said:
            said = literal(f"{status.folder}: {status.said}")
            console.print(said, soft_wrap=True, highlight=False)
    if not answers:
        print("Slurm is not responding: this is what the runs wrote to their folders")


def run_status(folder: Path, slurm_answers: bool) -> Status:
    """The row of one run. Never raises: whatever the folder contains, its other cells and other
    runs are still shown."""
    problems: list[str] = []

    def read(how: Callable[[], T], otherwise: T) -> T:
        try:
            return how()
        except Exception as error:  # whatever a folder contains
            kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
            problems.append(f"cannot be read: {kind}{error}")
            return otherwise

    state, said = read(lambda: _state(folder, slurm_answers), ("?", ""))
    last = read(lambda: _last_with_loss(folder), {})
    where = read(lambda: read_state(folder), None)
    newest = read(lambda: _newest(folder / "checkpoint"), None)
    spent = read(lambda: goodput(folder), None)
    requeued = len((text_if_good(folder / "restarts") or "").splitlines())
    return Status(
        folder=str(folder),
        state=state,
        # A job script that has just started the run reports step 0.
        step=str(where.step if where and where.step else last.get("step", 0)),
        loss=_figure(last.get("loss"), ".4f"),
        tokens_per_s=_figure(last.get("tokens_per_s"), ",.0f"),  # a task's metrics have none
        restarts=str(max(requeued, spent.restarts if spent else 0)),
        checkpoint="-" if newest is None else f"step-{newest}",
        goodput=_figure(spent.share if spent else None, ".0%"),
        said="; ".join(dict.fromkeys([said] * bool(said) + problems)),
    )


def _last_with_loss(folder: Path) -> dict[str, Any]:
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]
    return lines[-1] if lines else {}


def _newest(checkpoints: Path) -> int | None:
    saved = [newest_complete(checkpoints), *hugging_face_steps(checkpoints)]
    return max((step for step in saved if step is not None), default=None)


def _figure(value: Any, how: str) -> str:
    return format(value, how) if isinstance(value, int | float) else "-"


def _state(folder: Path, slurm_answers: bool) -> tuple[str, str]:
    """Slurm's state of a job that is in its queue; else the run's own last state, if it is
    alive."""
    job, own = folder / "job", read_state(folder)
    if job.exists() and slurm_answers:
        queued = _in_queue(read_text(job, limit=_JOB_BYTES).strip())
        if queued is not None:
            return queued, ""
        if own is None or own.word in ("starting", "running"):
            return "ended", "its job has left the queue without giving a reason: see its logs"
    if own is None:
        return _state_of_task(folder), ""
    if own.word in ("starting", "running"):
        silent = _silent_seconds(folder)
        if silent is not None:
            how = "resume" if newest_complete(folder / "checkpoint") is not None else "start over"
            why = f"no sign of life for {silent:,.0f} s: start it again to {how}"
            return "dead", why
    return own.word, own.said if own.word != "stopped" else ""


def _state_of_task(folder: Path) -> str:
    """A task, or a point of a sweep, has no word of its own: its files say how far it is."""
    if (folder / "result.json").exists():
        return "finished"
    lives = owner_lives(folder)
    if lives is not None:
        return "running" if lives else "dead"
    return "stopped" if (folder / "checkpoint.pt").exists() else "-"


def _silent_seconds(folder: Path) -> float | None:
    """For how long a run that claims to be running has shown no sign of life; None if it is
    alive."""
    files = (folder / "state", heartbeat_file(folder, 0))
    signs = [file.stat().st_mtime for file in files if file.exists()]
    silent = time.time() - max(signs)
    return silent if silent > (_BEATS_MISSED if _is_gone(folder) else _SILENT) else None


def _is_gone(folder: Path) -> bool:
    """Whether the process of the first rank ran on this machine and has ended."""
    said = read_heartbeats(folder, 1).get(0, {})
    if said.get("host") != socket.gethostname() or not isinstance(said.get("process"), int):
        return False
    try:
        os.kill(said["process"], 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False


def _slurm_answers() -> bool:
    """Whether Slurm answers. True where there is no Slurm: then the runs' own states are all there
    is."""
    if shutil.which("scontrol") is None:
        return True
    try:  # squeue could block for minutes
        return not subprocess.run(["scontrol", "ping"], capture_output=True, timeout=20).returncode
    except subprocess.TimeoutExpired:
        return False


def _in_queue(job: str) -> str | None:
    if shutil.which("squeue") is None:
        return None
    shown = subprocess.run(
        ["squeue", "--noheader", "--jobs", job, "--states=all", "--format=%T"],
        capture_output=True,
        text=True,
    )
    word = shown.stdout.strip().lower()
    return word if word in ("pending", "running", "completing", "suspended", "requeued") else None


def _all_runs() -> list[Path]:
    """All runs in runs/NAME, and in runs/NAME/VARIANT of an array."""
    runs = Path("runs")
    found = [folder for folder in [*runs.glob("*/"), *runs.glob("*/*/")] if _is_run(folder)]
    if not found:
        raise ConfigError("there is no run in runs/: name its folder, or submit one")
    return sorted(found)


def _is_run(folder: Path) -> bool:
    # Not Path.exists, which fails where the folder is private to somebody else.
    return any(os.path.exists(folder / name) for name in ("job", "state", "metrics.jsonl"))

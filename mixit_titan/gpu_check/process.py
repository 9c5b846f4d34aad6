"""Commands with a time limit, and lists of cases in which a crash does not take the other cases
along.

A worker is a module that calls `answer`: it reads a file of cases and writes one line per case. If
it dies or takes too long, the current case has failed, and another worker continues after it.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Case = dict[str, Any]

# Variables of a rank, which this command may be running as.
_OF_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_SECONDS_TO_END = 45  # torchrun gives its ranks 30
_POLL = 0.05
_LONGEST = 240  # characters of a quoted line
# The line of a traceback that names the error, or the sentence that a command ends with.
_ERROR = re.compile(r"(\[rank\d+\]:)?\s*(mixit-titan: |([A-Za-z_]\w*\.)*\w*(Error|Exception)\b)")


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None
    """The exit code, or None at the time limit."""
    last: str
    """The last thing that it printed."""
    seconds: float

    def __str__(self) -> str:
        if self.code is None:
            how = f"not finished after {self.seconds:,.0f} s"
        elif self.code < 0:
            how = f"killed by {signal.Signals(-self.code).name}"
        else:
            how = f"exit code {self.code}"
        return f"{how}: {self.last}"


def module(name: str, *arguments: str | Path) -> list[str]:
    """Return the command that runs a Python module with the interpreter of this process."""
    return [sys.executable, "-m", name, *map(str, arguments)]


@contextlib.contextmanager
def started(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen]:
    """Start a process that writes to `log`. Leaving the block ends it and everything it started."""
    log.parent.mkdir(parents=True, exist_ok=True)
    inherited = {key: value for key, value in os.environ.items() if key not in _OF_RANKS}
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**inherited, **(environment or {})},
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            _end(process)


def run(
    command: Sequence[str],
    log: Path,
    limit: float,
    *,
    watch: Callable[[subprocess.Popen], None] = lambda process: None,
    **options: Any,
) -> Ended:
    """Run a command; `watch` is called again and again while it runs."""
    start = time.monotonic()
    with started(command, log, **options) as process:
        while process.poll() is None and time.monotonic() < start + limit:
            watch(process)
            time.sleep(_POLL)
        code = process.returncode
    return Ended(code, last_line(log), time.monotonic() - start)


def run_cases(
    worker: str,
    cases: Sequence[Case],
    folder: Path,
    limit: float,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Case, Case | Ended, float]]:
    """Yield each case with what the worker answered or how it ended, and its seconds. `limit`: the
    seconds that a case may take, including the start of the worker."""
    left = list(cases)
    folder.mkdir(parents=True, exist_ok=True)
    asked, answers = folder / "cases.json", folder / "answers.jsonl"
    while left:
        asked.write_text(json.dumps(left))
        answers.write_text("")
        log, done, code = folder / f"log_{len(cases) - len(left)}.txt", 0, None
        with started(module(worker, asked, answers), log, environment) as process:
            since = time.monotonic()
            while code is None and done < len(left) and time.monotonic() < since + limit:
                time.sleep(_POLL)
                code = process.poll()  # before the answers are read, so that the last one counts
                for line in _complete_lines(answers)[done:]:
                    now = time.monotonic()
                    yield left[done], json.loads(line), now - since
                    done, since = done + 1, now
        if done < len(left):
            seconds = time.monotonic() - since
            yield left[done], Ended(code, last_line(log), seconds), seconds
        left = left[done + 1 :]


def _complete_lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def answer(function: Callable[..., Case]) -> None:
    """The main function of a worker. It catches nothing, since a CUDA error spoils the process."""
    asked, answers = map(Path, sys.argv[1:])
    for case in json.loads(asked.read_text()):
        print(json.dumps(case), flush=True)
        found = function(**case)
        with answers.open("a") as file:
            file.write(json.dumps(found) + "\n")


def last_line(log: Path) -> str:
    """Return the last line of a log that says what went wrong, or its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    errors = [line for line in lines if _ERROR.match(line)]
    said = [line for line in lines if re.search(r"\w", line)]  # not rules and boxes
    last = errors[-1] if errors else said[-1] if said else "no output"
    return last if len(last) <= _LONGEST else f"{last[:_LONGEST]} ..."


def _end(process: subprocess.Popen) -> None:
    """Ask torchrun to end its ranks, which have sessions of their own."""
    all_of_it = [process.pid, *_descendants(process.pid)]
    process.terminate()
    try:
        process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        all_of_it += _descendants(process.pid)
    for pid in all_of_it:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                found += [child, *_descendants(child)]
    return found

"""A watch on progress: ends a run that makes none, and reports which rank hangs where.

Each rank has a watcher, a small process without torch, and tells it what it begins: `step 12`. The
watcher ends the run when nothing new has begun for longer than that section may take. Because it is
a process, it also works while the rank is stuck in a driver or stopped by a signal, and it needs
neither the process group nor the GPU.

Watchers communicate through the run's folder. Each keeps `heartbeat/rank_N` up to date. One that
has waited too long writes `heartbeat/alarm`; every watcher that sees it makes its rank write its
stacks to its log, and kills the rank once the others had time to do the same.
"""

import contextlib
import faulthandler
import json
import logging
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from mixit_titan.files import json_text
from mixit_titan.reading import WrongFile, regular, text_if_good
from mixit_titan.runtime.heartbeat import (
    Section,
    describe,
    heartbeat_file,
    read_heartbeats,
    section_name,
    write_in_place,
)
from mixit_titan.runtime.ledger import note, start_ledger
from mixit_titan.runtime.run_state import StateFile

FLOOR, FACTOR = 25.0, 10.0
_STACKS = signal.SIGUSR2
_UNWRITABLE = (OSError, WrongFile)
_ALARM_BYTES = 4096
_SECONDS_BETWEEN = 5.0  # heartbeats, and checks for an alarm
_SECONDS_TO_TELL = 2.0  # for stacks to be written and a file to be visible on another node
_SECONDS_TO_GATHER = 0.02  # messages about very quick steps
_OVER = "over"
_PACKAGES = str(Path(__file__).parents[2])  # where a watcher finds this one


@dataclass(kw_only=True, slots=True)
class WatchConfig:
    """[watch]: how many seconds may pass without progress before the run is ended."""

    enable: bool = True
    """If off, the run is never ended, but `mixit-titan status` still sees whether it is alive."""
    start: float = 1800.0
    """From the first process to the first step: building, loading, connecting the ranks."""
    first_step: float = 1800.0
    """For each of the first steps and the batches of the first validation, which compile; and for
    those of an evaluation, which builds its prompts first."""
    step: float | None = None
    """For one step. Default: learned, 25 s plus ten times the slowest step so far."""
    validation: float | None = None
    """For one batch. Default: learned in the same way."""
    save: float = 1800.0
    """For a save, and for what follows the last step."""

    def limits(self) -> dict[Section, float | None]:
        """Seconds per section; None: learned."""
        return {
            "start": self.start,
            "first step": self.first_step,
            "step": self.step,
            "first validation": self.first_step,
            "validation": self.validation,
            "evaluation": self.first_step,
            "save": self.save,
            "end": self.save,
        }


# In the rank.

_watcher: subprocess.Popen | None = None


def start_watch(config: WatchConfig, folder: str) -> None:
    """Start the watcher of this rank, which `begin` reports to until `stop_watch`. Stacks,
    including those that somebody requests by `kill -USR2`, go to the rank's log. Does nothing for a
    rank that is watched already."""
    global _watcher
    if _watcher is not None:
        return
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        start_ledger()
    for name in ("logs", "heartbeat"):
        (Path(folder) / name).mkdir(parents=True, exist_ok=True)
    log = open(_log(folder, rank), "a", opener=regular)  # noqa: SIM115 (as long as the process)
    faulthandler.register(_STACKS, log, all_threads=True)
    settings = {"folder": str(Path(folder).resolve()), "rank": rank, "ranks": ranks}
    settings |= {"process": os.getpid(), "config": asdict(config)}
    path = [_PACKAGES, os.environ.get("PYTHONPATH")]
    _watcher = subprocess.Popen(
        [sys.executable, "-m", "mixit_titan.runtime.watch", json.dumps(settings)],
        stdin=subprocess.PIPE,
        bufsize=0,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        # Signals to the rank's group, and Ctrl-Z, are not for the watcher.
        start_new_session=True,
    )
    os.set_blocking(_watcher.stdin.fileno(), False)


def begin(section: Section, step: int) -> None:
    """Tell the watcher, if there is one, and the ledger. Costs one system call."""
    global _watcher
    note(section, step)
    if _watcher is None:
        return
    try:
        _watcher.stdin.write(f"{section} {step}\n".encode())  # does not block if the pipe is full
    except BrokenPipeError:
        _watcher = None
        logging.warning("The watcher of this rank has ended: nothing will notice if the rank hangs")


def stop_watch() -> None:
    """Stop the watcher of this rank, if it has one."""
    global _watcher
    if _watcher is None:
        return
    watcher, _watcher = _watcher, None
    # Not by closing the pipe: the loader's workers, which are forks of the rank, hold it, too.
    with contextlib.suppress(BrokenPipeError):
        watcher.stdin.write(f"{_OVER}\n".encode())
    watcher.stdin.close()
    try:
        watcher.wait(_SECONDS_TO_TELL)
    except subprocess.TimeoutExpired:  # the disk hangs
        watcher.kill()
    faulthandler.unregister(_STACKS)


def _log(folder: str, rank: int) -> Path:
    return Path(folder) / "logs" / f"rank_{rank}.log"


# In the watcher.


class Progress:
    """What the rank does, and for how long. Time in which the rank or this process was not running
    is not counted: then the machine was suspended, and nothing hangs."""

    def __init__(self, limits: dict[Section, float | None]) -> None:
        self.limits = limits
        self.section: Section = "start"
        self.step, self.seconds, self.since = 0, 0.0, time.monotonic()
        self.slowest: dict[str, float] = {}
        self._seen: set[str] = set()

    def begin(self, section: Section, step: int) -> None:
        """Begin a section and learn from the duration of the one before it."""
        kind = self.section.removeprefix("first ")
        if kind in self._seen:  # the first of its kind compiles, and teaches nothing
            self.slowest[kind] = max(self.slowest.get(kind, 0.0), self.seconds)
        self._seen.add(kind)
        self.section, self.step, self.seconds, self.since = section, step, 0.0, time.monotonic()

    def wait(self, seconds: float, expected: float) -> None:
        """Count `seconds` that have passed, where this process had meant to check after
        `expected`."""
        self.seconds += min(seconds, 2 * expected)

    @property
    def limit(self) -> float:
        """Seconds that the current section may take."""
        limit = self.limits[self.section]
        return FLOOR + FACTOR * self.slowest.get(self.section, 0.0) if limit is None else limit


class Watcher:
    """Watches one rank: see the top of this file."""

    def __init__(self, folder: str, rank: int, ranks: int, process: int, config: dict) -> None:
        self.folder, self.rank, self.ranks, self.process = folder, rank, ranks, process
        config = WatchConfig(**config)
        self.enabled = config.enable
        self.progress = Progress(config.limits())
        shortest = min(limit or FLOOR for limit in config.limits().values())
        self.tick = min(1.0, shortest / 4)
        self.between = min(_SECONDS_BETWEEN, shortest / 4)
        self.alarm = Path(folder) / "heartbeat" / "alarm"
        self.before = ""  # the alarm left by an earlier start
        self.heard = ""  # the alarm that this watcher has seen, or raised
        self.stopped = False

    def run(self) -> None:
        """Watch until the rank is gone, or has been ended."""
        # A hanging file system may be why the rank hangs: it must not stop the clock.
        threading.Thread(target=self._keep_in_touch, daemon=True).start()
        last = time.monotonic()
        while os.getppid() == self.process:
            said = select.select([0], [], [], self.tick)[0]
            self.stopped = not said and _is_stopped(self.process)
            now = time.monotonic()
            if not self.stopped:
                self.progress.wait(now - last, self.tick)
            last = now
            if said and not self._listen():
                break
            if self.enabled and (self.heard or self.progress.seconds > self.progress.limit):
                self._end_the_rank()
                break

    def _listen(self) -> bool:
        """Read what the rank reports. False if the run is over or its process is gone."""
        time.sleep(_SECONDS_TO_GATHER)
        said = os.read(0, 1 << 16).decode().splitlines()
        for line in said:
            if line == _OVER:
                return False
            section, step = line.rsplit(" ", 1)
            self.progress.begin(section, int(step))
        return bool(said)

    def _keep_in_touch(self) -> None:
        with contextlib.suppress(*_UNWRITABLE):
            self.alarm.touch()  # to be overwritten in place
        self.before = self._read_alarm()
        while True:
            with contextlib.suppress(*_UNWRITABLE):
                self._beat()
                alarm = self._read_alarm()
                if alarm != self.before:
                    self.heard = alarm
            time.sleep(self.between)

    def _beat(self) -> None:
        now = self.progress
        said = {
            "host": socket.gethostname(),
            "process": self.process,
            "section": now.section,
            "step": now.step,
            "seconds": round(time.monotonic() - now.since, 1),
            "stopped": self.stopped,
            "heard": self.heard,
        }
        write_in_place(heartbeat_file(Path(self.folder), self.rank), json_text(said))

    def _read_alarm(self) -> str:
        return (text_if_good(self.alarm, limit=_ALARM_BYTES) or "").strip()

    def _end_the_rank(self) -> None:
        telling = threading.Thread(target=self._tell, daemon=True)
        telling.start()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, _STACKS)
            os.kill(self.process, signal.SIGCONT)  # a stopped process writes no stacks
            time.sleep(_SECONDS_TO_TELL / 4)
            os.kill(self.process, signal.SIGSTOP)  # it must not train or crash meanwhile
            telling.join(self.between + 2 * _SECONDS_TO_TELL)
            os.kill(self.process, signal.SIGKILL)

    def _tell(self) -> None:
        now, alarm = self.progress, "" if self.heard else secrets.token_hex(8)
        with contextlib.suppress(*_UNWRITABLE):  # on a full disk, the rest still works
            if alarm:
                self.heard = alarm
                write_in_place(self.alarm, alarm)
        with contextlib.suppress(*_UNWRITABLE):
            self._beat()
        time.sleep(self.between + _SECONDS_TO_TELL)  # for the others to do the same
        where = section_name(now.section, now.step)
        with contextlib.suppress(*_UNWRITABLE), _log(self.folder, self.rank).open("a") as log:
            log.write(f"The run was ended with rank {self.rank} in {where}: its stacks are above\n")
        if alarm and self._read_alarm() in (alarm, self.before):  # only one watcher reports
            self._speak(alarm)

    def _speak(self, alarm: str) -> None:
        now = self.progress
        said = describe(read_heartbeats(Path(self.folder), self.ranks), self.ranks, alarm)
        sentence = (
            f"the run makes no progress: {said}, longer than the limit of {now.limit:.0f} s. The "
            f"stacks are in {self.folder}/logs; start it again to resume ([watch] sets the limits)"
        )
        with contextlib.suppress(*_UNWRITABLE):
            StateFile(self.folder).write("hung", now.step, sentence)
        os.write(2, f"mixit-titan: {sentence}\n".encode())


def _is_stopped(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


if __name__ == "__main__":
    Watcher(**json.loads(sys.argv[1])).run()

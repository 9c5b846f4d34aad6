"""Runs one command in its own process, and checks what every command promises for any input."""

import contextlib
import fnmatch
import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.forkserver import Forkserver, mixit_titan

SECONDS = 10.0
"""How long a command may take that is given something bad."""
CANARY = "canary"
"""A file in the folder of an attempt: code in a bad input would write it if it ran."""
MEMORY = 12 * 2**30
"""Bytes of address space that a command may have."""
UNFINISHED = (".*.part", ".unfinished-*")
"""Names of what is being written. None is there after a command."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended."""

    words: tuple[str, ...]
    code: int | None
    """None: it did not end in time, and was killed."""
    output: str
    """What it said, on both streams."""
    folder: Path
    new: tuple[str, ...]
    """Files below `folder` that were not there before."""

    @property
    def timed_out(self) -> bool:
        return self.code is None

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.output

    @property
    def sentences(self) -> list[str]:
        """What the command calls a mistake."""
        return [line for line in self.output.split("\n") if line.startswith("mixit-titan: ")]


class BrokenPromise(AssertionError):
    """A command that did what none may do, and how to see it again."""


def attempt(
    server: Forkserver, words: Sequence[str], folder: Path, *, seconds: float = SECONDS
) -> Outcome:
    """Run `mixit-titan WORDS` with `folder` as its working directory."""
    before = _files(folder)
    with server.start(_command, folder, tuple(words)) as process:
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(seconds)
        output = process.output(errors="backslashreplace")
    new = tuple(sorted(_files(folder) - before))
    return Outcome(words=tuple(words), code=code, output=output, folder=folder, new=new)


def check(
    outcome: Outcome, *, codes: Collection[int] = (0, 1, 2), may_leave: Collection[str] = ()
) -> None:
    """Raise BrokenPromise unless the command ended in time, with one of `codes`, without a
    traceback and with at most one sentence; ran no code of its input; and left no half-written
    result. A refused command (code 2) leaves no file but those whose names match `may_leave`."""
    if outcome.timed_out:
        _broken(outcome, "it did not end in time")
    if outcome.traceback:
        _broken(outcome, "it ended in a traceback")
    if outcome.code not in codes:
        _broken(outcome, f"exit code {outcome.code}, not one of {sorted(codes)}")
    sentences = outcome.sentences
    if len(sentences) > 1 or (outcome.code == 2) > len(sentences):
        _broken(outcome, f"{len(sentences)} sentences with exit code {outcome.code}")
    if sentences and _after(outcome.output, sentences[0]):
        _broken(outcome, "more words after the sentence")
    if any(not sentence.isprintable() for sentence in sentences):
        _broken(outcome, "a sentence that a terminal cannot show")
    if (outcome.folder / CANARY).exists():
        _broken(outcome, "it ran code of its input")
    for name in outcome.new:
        _check_file(outcome, name, may_leave)


def _after(output: str, sentence: str) -> list[str]:
    """The lines after `sentence`, less the one command that a sentence with a colon announces."""
    lines = output.rstrip("\n").split("\n")
    after = lines[lines.index(sentence) + 1 :]
    announced = sentence.endswith(":") and after[:1] and after[0].startswith("  mixit-titan ")
    return after[1:] if announced else after


def _check_file(outcome: Outcome, name: str, may_leave: Collection[str]) -> None:
    parts = Path(name).parts
    if any(fnmatch.fnmatch(part, form) for part in parts for form in UNFINISHED):
        _broken(outcome, f"it left {name} behind")
    allowed = (".lock", *may_leave)
    if outcome.code == 2 and not any(fnmatch.fnmatch(part, f) for part in parts for f in allowed):
        _broken(outcome, f"it refused, and wrote {name}")
    if name.endswith(".json") and ".broken" not in name:  # set aside as it was
        try:
            json.loads((outcome.folder / name).read_text(), parse_constant=_no_constant)
        except ValueError as error:
            _broken(outcome, f"{name} is not JSON: {error}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _broken(outcome: Outcome, what: str) -> NoReturn:
    said = outcome.output
    if len(said) > 6000:
        said = f"{said[:2000]}\n[...]\n{said[-4000:]}"
    words = " ".join(map(repr, outcome.words))
    raise BrokenPromise(f"{what}: mixit-titan {words} (in {outcome.folder})\n{said}")


def _command(folder: Path, words: tuple[str, ...]) -> NoReturn:
    """Ends without taking torch apart, which would take longer than most of what is tried here.
    More memory than a small machine has is refused, so that no neighbor is killed for it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(folder)
    code: object = 0
    try:
        mixit_titan(*words)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def _files(folder: Path) -> set[str]:
    """Folders are not counted: an empty one is no result. Nor is one that cannot be read."""
    found = set()
    for path, _, names in os.walk(folder):
        found |= {os.path.relpath(os.path.join(path, name), folder) for name in names}
    return found

"""Errors that end a command in one sentence: what is wrong, where, and what to do about it."""

import difflib
import errno
import os
import re
import select
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

SPEAKER = "mixit-titan: "
"""The prefix of the sentence that a command ends in."""
_LONG = 200  # characters of a value that a sentence shows
_NO_MEMORY = ("can't allocate memory", "Storage size calculation overflowed")
MAKE_ROOM = "what is finished is kept. Make room, and run the same command again to resume"
_ALIKE = 0.66
"""How similar two names must be for one to be suggested as the other."""
UNUSABLE = {
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO),
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.EEXIST),
}
"""Errors that are caused by the user's choice of a file or folder."""
_FULL = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT)}


class ConfigError(ValueError):
    """Wrong input. The process prints it without a traceback and exits with code 2."""


class RunFailed(RuntimeError):
    """A run that cannot continue, and would fail again if it were restarted unchanged. The process
    prints it without a traceback and exits with code 1."""


class RankFailed(RunFailed):
    """A failure that may concern one rank alone: whichever rank raises it prints it."""


class Problems:
    """Collects what is wrong with an input. Without `gathered`, the first problem is raised."""

    def __init__(self, *, gathered: bool = False) -> None:
        self.gathered = gathered
        self.found: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Collect a ConfigError raised in the block, once, and skip the rest of the block. Without
        `gathered`, let it pass."""
        try:
            yield
        except ConfigError as error:
            if not self.gathered:
                raise
            self.add([str(error)])

    def add(self, problems: Iterable[str]) -> None:
        """Add those problems that have not been found before."""
        self.found += [problem for problem in problems if problem not in self.found]

    def text(self) -> str:
        """All problems as a list with their number above it."""
        count = "1 problem" if len(self.found) == 1 else f"{len(self.found)} problems"
        return "\n".join([f"{count}:", *(f"  - {problem}" for problem in self.found)])


@contextmanager
def one_sentence() -> Iterator[None]:
    """End the process as a command should end: a user's mistake, an unusable file, too little
    memory and a full disk in one sentence; Ctrl-C, and a reader of the output that has seen enough
    (`| head`), in silence."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # None after `>&-`
                sys.stdout.flush()  # here, where a reader that has left can still be handled
    except (ConfigError, RunFailed) as error:
        if os.environ.get("RANK", "0") == "0" or isinstance(error, RankFailed):
            _say(str(error))
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except ImportError as error:
        library = re.match(r"(lib\S+\.so\S*): cannot open shared object", str(error))
        if library is None:
            raise
        _say(
            f"a library that torch needs cannot be found ({library[1]}): reinstall torch and its "
            "dependencies (`mixit-titan doctor` says more)"
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        sys.exit(128 + signal.SIGPIPE)
    except SystemExit:
        raise
    except BaseException as error:  # torch's CheckpointException is not an Exception
        name = getattr(error, "filename", None)
        if disk_is_full(error):
            _say(f"the disk{f' of {name}' if name else ''} is full: {MAKE_ROOM}")
            sys.exit(1)
        if memory_is_full(error):
            _say(f"out of memory ({error}): choose smaller sizes or a larger machine")
            sys.exit(1)
        if isinstance(error, OSError) and name and error.errno in UNUSABLE:
            _say(f"{str(name)!r} cannot be used: {error.strerror}")
            sys.exit(2)
        raise


def _say(sentence: str) -> None:
    """Print a sentence to stderr with unprintable characters escaped, whatever names the user or a
    library put into it. A command to type keeps a line of its own."""
    said, *commands = sentence.split("\n  ")
    lines = [re.sub(r"\s*\n\s*", " ", said), *commands]
    shown = ["".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines]
    print(SPEAKER + "\n  ".join(shown), file=sys.stderr)


def memory_is_full(error: BaseException) -> bool:
    """Whether an allocation failed: Python's, numpy's, or torch's on a CPU or GPU."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(words in str(error) for words in _NO_MEMORY)
    )


def _reader_has_left() -> bool:
    """Whether it is our own output that broke, rather than a pipe to one of our processes. Output
    that is still buffered is discarded, because Python would try to write it again on exit."""
    output = select.poll()
    output.register(sys.stdout.fileno(), select.POLLOUT)
    left = any(events & (select.POLLERR | select.POLLHUP) for _, events in output.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return left


def disk_is_full(error: BaseException | None) -> bool:
    """Whether a full disk or a quota is why a write failed, on any rank. Torch and safetensors
    report it as the cause of their own error, or only in its text."""
    while error is not None:
        if getattr(error, "errno", None) in _FULL or any(s in str(error) for s in _FULL.values()):
            return True
        failures = getattr(error, "failures", {}).values()  # of ranks, in a CheckpointException
        if any(disk_is_full(failure[0]) for failure in failures if isinstance(failure, tuple)):
            return True
        error = error.__cause__ or error.__context__
    return False


def shown(value: Any) -> str:
    """A value as Python writes it, truncated if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write thousands of digits
        return "a number with thousands of digits"
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def unknown(
    what: str,
    value: str,
    allowed: Iterable[str],
    *,
    where: str = "",
    meant: Iterable[str] | None = None,
) -> ConfigError:
    """The error for a name that is not allowed: `unknown variant 'mixti' in run.toml: did you mean
    'mixit'? (allowed: ...)`. `meant` lists the candidates for "did you mean", where they are not
    simply the allowed names."""
    allowed = list(allowed)
    near = nearest(str(value)[:_LONG], allowed if meant is None else meant)
    hint = f": did you mean {near!r}?" if near else ""
    place = f" in {where}" if where else ""
    return ConfigError(
        f"unknown {what} {shown(value)}{place}{hint} (allowed: {', '.join(allowed)})"
    )


def nearest(value: str, allowed: Iterable[str]) -> str | None:
    """The name that was probably meant: a few letters differ, or one name contains the other. None
    where nothing is close."""
    names = {_last_word(name): name for name in allowed}
    word = _last_word(value)
    inside = [n for n in names if min(len(n), len(word)) >= 3 and (n in word or word in n)]
    near = difflib.get_close_matches(word, names, n=1, cutoff=_ALIKE)
    near = near or difflib.get_close_matches(word, inside, n=1, cutoff=0.0)
    return names[near[0]] if near else None


def _last_word(name: str) -> str:
    """The part after the dot, `steps` for `--training.steps`, because two keys of one section are
    not alike for sharing its name."""
    return name.lstrip("-").rpartition(".")[2].lower().replace("-", "_")

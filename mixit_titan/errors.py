"""What ends in one sentence that says what is wrong, where, and what to do."""

import difflib
import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_LONG = 200  # characters of a value that a sentence shows
_NO_MEMORY = ("can't allocate memory", "Storage size calculation overflowed")
MAKE_ROOM = "what is finished stays. Make room, and run the same command again to resume"
_UNUSABLE = {
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO),
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL),
}
"""What the user's choice of a file is to blame for."""
_FULL = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT)}


class ConfigError(ValueError):
    """Wrong input. Its process prints it without a traceback and exits with code 2."""


class RunFailed(RuntimeError):
    """A run that cannot go on, and would not if it were started again as it is. Its process prints
    it without a traceback and exits with code 1."""


class RankFailed(RunFailed):
    """A failure that the other ranks need not have met: whichever rank it is prints it."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """End the process as a command ends: a user's mistake, a file that cannot be used, too little
    memory and a full disk in one sentence, Ctrl-C without a word."""
    try:
        yield
    except (ConfigError, RunFailed) as error:
        if os.environ.get("RANK", "0") == "0" or isinstance(error, RankFailed):
            _say(str(error))
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except ImportError as error:
        library = re.match(r"(lib\S+\.so\S*): cannot open shared object", str(error))
        if library is None:
            raise
        _say(
            f"a library that torch needs cannot be found ({library[1]}): install "
            "torch and what it depends on again (`mixit-titan doctor` says more)"
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit:
        raise
    except BaseException as error:  # torch's CheckpointException is not an Exception
        name = getattr(error, "filename", None)
        if disk_is_full(error):
            _say(f"the disk{f' of {name}' if name else ''} is full: {MAKE_ROOM}")
            sys.exit(1)
        if memory_is_full(error):
            _say(f"there is too little memory ({error}): choose smaller sizes or a larger machine")
            sys.exit(1)
        if isinstance(error, OSError) and name and error.errno in _UNUSABLE:
            _say(f"{str(name)!r} cannot be used: {error.strerror}")
            sys.exit(2)
        raise


def _say(sentence: str) -> None:
    """One line, whatever names the user or a library put into it."""
    line = " ".join(sentence.split())
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    print(f"mixit-titan: {shown}", file=sys.stderr)


def memory_is_full(error: BaseException) -> bool:
    """Whether an allocation failed, of Python, of numpy or of torch on a CPU or GPU."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(words in str(error) for words in _NO_MEMORY)
    )


def disk_is_full(error: BaseException | None) -> bool:
    """Whether that, or a quota, is why something could not be written, on any rank. Torch and
    safetensors say so in an error behind their own, or in words alone."""
    while error is not None:
        if getattr(error, "errno", None) in _FULL or any(s in str(error) for s in _FULL.values()):
            return True
        failures = getattr(error, "failures", {}).values()  # of ranks, in a CheckpointException
        if any(disk_is_full(failure[0]) for failure in failures if isinstance(failure, tuple)):
            return True
        error = error.__cause__ or error.__context__
    return False


def shown(value: Any) -> str:
    """A value as Python writes it, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def unknown(what: str, value: str, allowed: Iterable[str], *, where: str = "") -> ConfigError:
    """`unknown variant 'mixti' in run.toml: did you mean 'mixit'? (allowed: ...)`"""
    allowed = list(allowed)
    names = {name.lstrip("-"): name for name in allowed}  # that both are options is no likeness
    near = difflib.get_close_matches(str(value)[:_LONG].lstrip("-"), names, n=1)
    hint = f": did you mean {names[near[0]]!r}?" if near else ""
    place = f" in {where}" if where else ""
    return ConfigError(
        f"unknown {what} {shown(value)}{place}{hint} (allowed: {', '.join(allowed)})"
    )

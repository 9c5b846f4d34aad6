"""What ends in one sentence that says what is wrong, where, and what to do."""

import difflib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ConfigError(ValueError):
    """Wrong input. Its process prints it without a traceback and exits with code 2."""


class RunFailed(RuntimeError):
    """A run that cannot go on, and would not if it were started again as it is. Its process prints
    it without a traceback and exits with code 1."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """End the process as a command ends: a user's mistake in one sentence, Ctrl-C without a
    word."""
    try:
        yield
    except (ConfigError, RunFailed) as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"mixit-titan: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)


def unknown(what: str, value: str, allowed: Iterable[str], *, where: str = "") -> ConfigError:
    """`unknown variant 'mixti' in run.toml: did you mean 'mixit'? (allowed: ...)`"""
    allowed = list(allowed)
    names = {name.lstrip("-"): name for name in allowed}  # that both are options is no likeness
    near = difflib.get_close_matches(str(value).lstrip("-"), names, n=1)
    hint = f": did you mean {names[near[0]]!r}?" if near else ""
    place = f" in {where}" if where else ""
    return ConfigError(f"unknown {what} {value!r}{place}{hint} (allowed: {', '.join(allowed)})")

"""What ends in one sentence that says what is wrong, where, and what to do."""

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """Wrong input. The command line prints it without a traceback and exits with code 2."""


class RunFailed(RuntimeError):
    """A run that cannot go on, and would not if it were started again as it is. The command line
    prints it without a traceback and exits with code 1."""


def unknown(what: str, value: str, allowed: Iterable[str], *, where: str = "") -> ConfigError:
    """`unknown variant 'mixti' in run.toml: did you mean 'mixit'? (allowed: ...)`"""
    allowed = list(allowed)
    names = {name.lstrip("-"): name for name in allowed}  # that both are options is no likeness
    near = difflib.get_close_matches(str(value).lstrip("-"), names, n=1)
    hint = f": did you mean {names[near[0]]!r}?" if near else ""
    place = f" in {where}" if where else ""
    return ConfigError(f"unknown {what} {value!r}{place}{hint} (allowed: {', '.join(allowed)})")

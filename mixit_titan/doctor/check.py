"""One line of the report, and text that can be shown to anybody."""

import getpass
import os
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    fact: str
    advice: str = ""
    """What to do, if the state is not ok."""


def judge(name: str, fact: str, *, wrong: str | None = None, warning: str | None = None) -> Check:
    """A check from a fact. `wrong` and `warning` are the advice in that case; the first that is not
    None determines the state."""
    if wrong is not None:
        return Check(name, "wrong", fact, wrong)
    if warning is not None:
        return Check(name, "warning", fact, warning)
    return Check(name, "ok", fact)


def guarded(name: str, work: Callable[[], Iterable[Check]]) -> list[Check]:
    """The checks that `work` yields, up to one that raises: that becomes a warning with the
    reason."""
    checks = []
    try:
        for check in work():
            checks.append(check)
    except Exception as error:
        advice = "this is a bug in doctor, or a broken installation: please report it"
        fact = f"could not be checked ({told(error)})"
        checks.append(Check(name, "warning", fact, advice))
    return checks


def told(error: Exception) -> str:
    """An error as the report shows it."""
    return anonymous(f"{type(error).__name__}: {error}".strip().splitlines()[0])


def anonymous(text: str) -> str:
    """Text without the names of host, user and home folder, and without addresses, because reports
    are passed around."""
    home = os.path.expanduser("~")  # Path.home() raises where there is none
    text = text.replace(home, "~") if home != "/" else text
    host = socket.gethostname()
    for name, stands_for in ((host, "HOST"), (host.split(".")[0], "HOST"), (_user(), "USER")):
        if name and name != "localhost":
            text = re.sub(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", stands_for, text)
    return re.sub(r"\b\d{1,3}(\.\d{1,3}){3}\b", "ADDRESS", text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return ""

"""One line of the report, and text that can be shown to anybody."""

import getpass
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Check:
    name: str
    state: State
    fact: str
    advice: str = ""
    """What to do, where the state is not ok."""


def judge(name: str, fact: str, *, wrong: str | None = None, warning: str | None = None) -> Check:
    """`wrong`, `warning`: what to do if it is so; the first that is not None counts."""
    if wrong is not None:
        return Check(name, "wrong", fact, wrong)
    if warning is not None:
        return Check(name, "warning", fact, warning)
    return Check(name, "ok", fact)


def guarded(name: str, work: Callable[[], Iterable[Check]]) -> list[Check]:
    """Its checks; or a warning that says why they could not be made."""
    try:
        return [*work()]
    except Exception as error:
        said = anonymous(f"{type(error).__name__}: {error}".strip().splitlines()[0])
        advice = "this is a mistake of doctor's, or a broken installation: please report it"
        return [Check(name, "warning", f"could not be checked ({said})", advice)]


def anonymous(text: str) -> str:
    """Without names of host, user and home folder, nor addresses: a report is shown around."""
    text = text.replace(str(Path.home()), "~") if str(Path.home()) != "/" else text
    host = socket.gethostname()
    for name, stands_for in ((host, "HOST"), (host.split(".")[0], "HOST"), (_user(), "USER")):
        if name and name != "localhost":
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", stands_for, text)
    return re.sub(r"\b\d{1,3}(\.\d{1,3}){3}\b", "ADDRESS", text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in some containers
        return ""

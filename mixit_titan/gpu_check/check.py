"""One line of the report, and the verdict in it."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

State = Literal["pass", "fail", "skipped"]


class Verdict(NamedTuple):
    state: State
    said: str
    """What was found; or why it failed or was skipped."""
    figures: dict[str, Any]
    """What the tables of the report are made of."""


def passed(said: str, **figures: Any) -> Verdict:
    return Verdict("pass", said, figures)


def failed(why: object, **figures: Any) -> Verdict:
    return Verdict("fail", str(why), figures)


def skipped(why: str, **figures: Any) -> Verdict:
    return Verdict("skipped", why, figures)


NEEDS_A_GPU = skipped("needs a GPU")


@dataclass(frozen=True)
class Check:
    section: str
    name: str
    state: State
    said: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

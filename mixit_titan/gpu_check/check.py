"""One line of the report, with its verdict."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

State = Literal["pass", "fail", "skipped"]


class Verdict(NamedTuple):
    """What a check came to: pass, fail or skipped, with what was found or the reason."""

    state: State
    said: str
    """What was found; or why it failed or was skipped."""
    figures: dict[str, Any]
    """The figures that the tables of the report are made of."""


def passed(said: str, **figures: Any) -> Verdict:
    """Return a verdict that a check passed."""
    return Verdict("pass", said, figures)


def failed(why: object, **figures: Any) -> Verdict:
    """Return a verdict that a check failed."""
    return Verdict("fail", str(why), figures)


def skipped(why: str, **figures: Any) -> Verdict:
    """Return a verdict that a check was skipped."""
    return Verdict("skipped", why, figures)


NEEDS_A_GPU = skipped("needs a GPU")


@dataclass(frozen=True)
class Check:
    """One check of a section, as the report has it."""

    section: str
    name: str
    state: State
    said: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

"""A command with bad input."""

from collections.abc import Collection
from dataclasses import dataclass

from tests.fuzz.attempt import SECONDS


@dataclass(frozen=True)
class Case:
    """A command to be tried, and what `check` is to allow it."""

    words: list[str]
    codes: Collection[int] = (0, 1, 2)
    may_leave: Collection[str] = ()
    seconds: float = SECONDS

    @property
    def limit(self) -> float:
        """Seconds, and more of them for what may be valid and take long: `doctor` compiles and
        writes to the disk, a task may be given a million examples or tokens, a tokenizer may be
        trained, and lm-eval is imported."""
        works = self.words[0] == "doctor"
        works |= any(word.partition("=")[0] in _WORKS for word in self.words)
        return max(self.seconds, WORKS) if works else self.seconds


WORKS = 60.0
_WORKS = ("--train", "--vocab", "--train-tokenizer", "--tasks", "--eval.tasks")

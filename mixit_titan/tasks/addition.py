"""Decimal addition: two numbers of the same number of digits, and their sum.

    question  1234567890+2345678901
    answer    3580246791

Each number is given with its least significant digit first, and the answer in digit tokens of its
own, one digit more than the numbers have (here 19764208530 and a leading 0):

    0 9 8 7 6 5 4 3 2 1 + 1 0 9 8 7 6 5 4 3 2 = 1' 9' 7' 6' 4' 2' 0' 8' 5' 3' 0' stop

The labels ask for the digits of the answer: the first one at `=`, every other at the digit before
it. `labels = "official"` asks for what the authors' code asks for: the stop token, and not the
first digit.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.ranges import Range
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task

PLUS, EQUALS, ANSWER, STOP = 10, 11, 12, 22


@dataclass(frozen=True, kw_only=True)
class Addition(Task):
    """Add two numbers of equal length, digit by digit."""

    digits: Annotated[int, Range(least=1, most=18)] = 10
    """Digits of each of the two numbers."""
    labels: Literal["answer", "official"] = "answer"
    """What is trained and scored: the digits of the answer or, as in the authors' code, all of them
    but the first, and the stop token."""

    @property
    def token_count(self) -> int:
        return STOP + 1

    @property
    def positions(self) -> int:
        return 3 * self.digits + 3

    @property
    def length_key(self) -> str:
        return "digits"

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        low, high = 10 ** (self.digits - 1), 10**self.digits
        a_N, b_N = rng.integers(low, high, (2, count))
        one = np.ones((count, 1), dtype=np.int64)
        answer = _digits(a_N + b_N, self.digits + 1)
        row = [_digits(a_N, self.digits), PLUS * one, _digits(b_N, self.digits), EQUALS * one]
        row += [answer + ANSWER, STOP * one]
        row = np.concatenate(row, axis=1).astype(np.int32)
        asked = np.arange(self.positions) - (2 * self.digits + 1)  # 0 at `=`, which asks digit 0
        first = 1 if self.labels == "official" else 0
        last = self.digits + (1 if self.labels == "official" else 0)
        labels = np.where((asked >= first) & (asked <= last), row[:, 1:], IGNORE_INDEX)
        return Examples(row[:, :-1], labels, {"digit": asked[None]})

    def token_name(self, token: int) -> str:
        if token < ANSWER:
            return {PLUS: "+", EQUALS: "="}.get(token, str(token))
        return "stop" if token == STOP else f"{token - ANSWER}'"

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        d = self.digits
        a, b, answer = tokens_L[:d], tokens_L[d + 1 : 2 * d + 1], tokens_L[2 * d + 2 :] - ANSWER
        return f"{_number(a)}+{_number(b)}", f"{_number(answer)}"


def _digits(numbers_N: np.ndarray, count: int) -> np.ndarray:
    """Return decimal digits, the least significant first."""
    return numbers_N[:, None] // 10 ** np.arange(count, dtype=np.int64) % 10


def _number(digits: np.ndarray) -> int:
    return int("".join(str(digit) for digit in digits[::-1]))

"""Difficulties so small that all of their examples are written here by hand, from the definitions
in the papers: each of them appears, with the right frequency, and no other does."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.tasks.dyck_k import DyckK
from mixit_titan.tasks.induction import Induction
from mixit_titan.tasks.mad_compression import MadCompression
from mixit_titan.tasks.mad_fuzzy_recall import MadFuzzyRecall
from mixit_titan.tasks.mad_memorization import MadMemorization
from mixit_titan.tasks.mad_noisy_recall import MadNoisyRecall
from mixit_titan.tasks.mad_recall import MadRecall
from mixit_titan.tasks.mad_selective_copying import MadSelectiveCopying
from mixit_titan.tasks.modular_sum import ModularSum
from mixit_titan.tasks.mqar import Mqar
from mixit_titan.tasks.parity import Parity
from mixit_titan.tasks.sorting import Sorting
from mixit_titan.tasks.task import Task

# Tokens and labels of one example, a dot where nothing is asked; then how often it comes, if not as
# often as the others.
CASES: list[tuple[Task, list[tuple[str, str, float] | tuple[str, str]]]] = [
    # The only key is 1, values are 2 and 3, and there is one slot.
    (Mqar(pairs=1, length=4, vocab=4), [("1 2 1 0", ". . 2 ."), ("1 3 1 0", ". . 3 .")]),
    # Two slots. Of the law i^(a - 1) at a = 2, the second is twice as likely as the first.
    (
        Mqar(pairs=1, length=6, vocab=4, power_a=2.0),
        [
            ("1 2 1 0 0 0", ". . 2 . . .", 1 / 6),
            ("1 3 1 0 0 0", ". . 3 . . .", 1 / 6),
            ("1 2 0 0 1 0", ". . . . 2 .", 1 / 3),
            ("1 3 0 0 1 0", ". . . . 3 .", 1 / 3),
        ],
    ),
    (
        MadRecall(vocab=4, length=4),
        [
            ("0 2 0", ". . 2"),
            ("0 3 0", ". . 3"),
            ("1 2 1", ". . 2"),
            ("1 3 1", ". . 3"),
        ],
    ),
    # The only key is 0, values are 1 and 2.
    (
        MadRecall(vocab=3, length=6),
        [
            ("0 1 0 1 0", ". . 1 . 1"),
            ("0 2 0 2 0", ". . 2 . 2"),
        ],
    ),
    # Key 0, value 1, noise 2. One of the first two places always holds the pair.
    (
        MadNoisyRecall(vocab=3, noise_vocab=1, length=6, noise_share=0.5),
        [
            ("0 1 0 1 0", ". . 1 . 1", 1 / 2),
            ("0 1 2 2 0", ". . . . 1", 1 / 4),
            ("2 2 0 1 0", ". . . . 1", 1 / 4),
        ],
    ),
    # Key 0, values 1 and 2 or both of them in either order; 3 fills up.
    (
        MadFuzzyRecall(vocab=4, length=5, key_tokens=1, value_tokens=2),
        [
            ("3 3 0 1 0", ". . . . 1", 1 / 4),
            ("3 3 0 2 0", ". . . . 2", 1 / 4),
            ("0 1 2 0 1", ". . . 1 2", 1 / 4),
            ("0 2 1 0 2", ". . . 2 1", 1 / 4),
        ],
    ),
    # One token, 0; 1 is the blank and 2 is the bar.
    (
        MadSelectiveCopying(vocab=3, length=6, copies=2),
        [("1 0 0 2 1 1", ". . . . 0 0"), ("0 1 0 2 1 1", ". . . . 0 0")],
    ),
    (
        MadCompression(vocab=3, length=3),
        [("0 0 2", "0 0 ."), ("0 1 2", "0 1 ."), ("1 0 2", "1 0 ."), ("1 1 2", "1 1 .")],
    ),
    (
        Induction(pattern=2, min_gap=1, max_gap=1, vocab=3),
        [(f"{a} {b} {c} {a}", f". . . {b}") for a, b, c in permutations(range(3))],
    ),
    (
        Induction(pattern=2, max_gap=1, vocab=3),
        [
            *((f"{c} {a} {b} {a}", f". . . {b}") for a, b, c in permutations(range(3))),
            *((f"{a} {b} {c} {a}", f". . . {b}") for a, b, c in permutations(range(3))),
        ],
    ),
    (
        Sorting(length=2, size=2),
        [
            ("0 0 2 0", ". . 0 0"),
            ("0 1 2 0", ". . 0 1"),
            ("1 0 2 0", ". . 0 1"),
            ("1 1 2 1", ". . 1 1"),
        ],
    ),
    # ()() alone, then (()) as well; of two kinds, 0 and 1 open and 2 and 3 close.
    (DyckK(kinds=1, depth=1, length=4), [("0 1 0", "1 . 1")]),
    (DyckK(kinds=1, depth=2, length=4), [("0 1 0", "1 . 1"), ("0 0 1", ". 1 1")]),
    (
        DyckK(kinds=2, depth=2, length=4),
        [
            *((f"{a} {a + 2} {b}", f"{a + 2} . {b + 2}") for a in (0, 1) for b in (0, 1)),
            *((f"{a} {b} {b + 2}", f". {b + 2} {a + 2}") for a in (0, 1) for b in (0, 1)),
        ],
    ),
    (Parity(length=2), [("0 0", "0 0"), ("0 1", "0 1"), ("1 0", "1 1"), ("1 1", "1 0")]),
    (
        Parity(length=2, labels="last"),
        [("0 0", ". 0"), ("0 1", ". 1"), ("1 0", ". 1"), ("1 1", ". 0")],
    ),
    (
        ModularSum(length=2, modulus=3),
        [(f"{a} {b}", f"{a} {(a + b) % 3}") for a in range(3) for b in range(3)],
    ),
]


@pytest.mark.parametrize(
    ("task", "expected"), CASES, ids=[f"{n}-{type(t).__name__}" for n, (t, _) in enumerate(CASES)]
)
def test_all_examples_of_a_tiny_difficulty(task: Task, expected: list) -> None:
    task.check()
    count = 20_000
    examples = task.draw(np.random.default_rng(0), count)
    found = Counter(
        (
            " ".join(map(str, tokens)),
            " ".join("." if label == IGNORE_INDEX else str(label) for label in labels),
        )
        for tokens, labels in zip(examples.tokens.tolist(), examples.labels.tolist(), strict=True)
    )
    assert set(found) == {case[:2] for case in expected}
    for case in expected:
        share = case[2] if len(case) == 3 else 1 / len(expected)
        assert abs(found[case[:2]] / count - share) <= 5 * (share * (1 - share) / count) ** 0.5


def test_the_smallest_memorization_has_one_key_and_one_value() -> None:
    task = MadMemorization(vocab=3, length=4)
    assert task.values(seed=0).tolist() == [1]
    examples = task._draw_with(task.values(seed=0), np.random.default_rng(0), 2)
    assert examples.tokens.tolist() == [[0, 2, 0, 2]] * 2
    assert examples.labels.tolist() == [[IGNORE_INDEX, 1, IGNORE_INDEX, 1]] * 2

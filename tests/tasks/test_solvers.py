"""Every label of a task again, by an independent solver in plain Python: for the worked example at
the top of its file, and for a held-out set."""

import re
import sys
from collections.abc import Callable

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

Labels = list[int | None]
"""What must be said at each position, None where nothing is asked."""


def solve_mqar(task: Mqar, tokens: list[int]) -> Labels:
    context = 2 * task.pairs
    value = {tokens[i]: tokens[i + 1] for i in range(0, context, 2)}
    return [None] * context + [value.get(token) for token in tokens[context:]]


def solve_recall(task: MadRecall, tokens: list[int], noise_from: int | None = None) -> Labels:
    value, labels = {}, []
    for place, token in enumerate(tokens):
        is_key = place % 2 == 0 and (noise_from is None or token < noise_from)
        labels.append(value.get(token) if is_key else None)
        if is_key and place + 1 < len(tokens):
            value[token] = tokens[place + 1]
    return labels


def solve_noisy_recall(task: MadNoisyRecall, tokens: list[int]) -> Labels:
    return solve_recall(task, tokens, noise_from=task.vocab - task.noise_vocab)


def solve_fuzzy_recall(task: MadFuzzyRecall, tokens: list[int]) -> Labels:
    filler, keys = task.vocab - 1, (task.vocab - 1) // 2
    labels, value, place = [None] * len(tokens), {}, 0
    while place < len(tokens) and tokens[place] == filler:
        place += 1
    while place < len(tokens):
        start = place
        while place < len(tokens) and tokens[place] < keys:
            place += 1
        key, start = tuple(tokens[start:place]), place
        while place < len(tokens) and tokens[place] >= keys:
            place += 1
        if key in value:
            for number, token in enumerate(value[key]):
                labels[start - 1 + number] = token
        else:
            value[key] = tokens[start:place]
    return labels


def solve_copying(task: MadSelectiveCopying, tokens: list[int]) -> Labels:
    bar, blank = task.vocab - 1, task.vocab - 2
    place = tokens.index(bar)
    return [None] * (place + 1) + [token for token in tokens[:place] if token != blank]


def solve_compression(task: MadCompression, tokens: list[int]) -> Labels:
    return [*tokens[:-1], None]


def solve_induction(task: Induction, tokens: list[int]) -> Labels:
    asked = tokens[1 - task.pattern :]
    answers = [tokens[tokens.index(token) + 1] for token in asked]
    return [None] * (len(tokens) - len(asked)) + answers


def solve_sorting(task: Sorting, tokens: list[int]) -> Labels:
    left, answer = tokens[: task.length], []
    while left:
        smallest = min(left)
        left.remove(smallest)
        answer.append(smallest)
    return [None] * task.length + answer


def solve_dyck_k(task: DyckK, tokens: list[int]) -> Labels:
    stack, labels = [], []
    for place, token in enumerate(tokens):
        if token < task.kinds:
            stack.append(token)
        else:
            assert stack.pop() == token - task.kinds
        assert 0 <= len(stack) <= task.depth
        closes = place + 1 == len(tokens) or tokens[place + 1] >= task.kinds
        labels.append(stack[-1] + task.kinds if closes else None)
    assert len(stack) == 1  # the last bracket, which is only asked, closes it
    return labels


def solve_sum(task: Parity | ModularSum, tokens: list[int]) -> Labels:
    total, labels = 0, []
    for token in tokens:
        total += token
        while total >= task.modulus:
            total -= task.modulus
        labels.append(total)
    return labels if task.labels == "all" else [None] * (len(tokens) - 1) + labels[-1:]


SOLVERS: dict[type[Task], Callable[..., Labels]] = {
    Mqar: solve_mqar,
    MadRecall: solve_recall,
    MadNoisyRecall: solve_noisy_recall,
    MadFuzzyRecall: solve_fuzzy_recall,
    MadSelectiveCopying: solve_copying,
    MadCompression: solve_compression,
    Induction: solve_induction,
    Sorting: solve_sorting,
    DyckK: solve_dyck_k,
    Parity: solve_sum,
    ModularSum: solve_sum,
}
WORKED = [  # of the difficulties that the worked examples have
    Mqar(pairs=2, length=12, vocab=12),
    MadRecall(vocab=8, length=8),
    MadNoisyRecall(vocab=10, noise_vocab=2, length=10),
    MadFuzzyRecall(vocab=10, length=12, key_tokens=2, value_tokens=2),
    MadSelectiveCopying(vocab=8, length=10, copies=3),
    MadCompression(vocab=8, length=5),
    Induction(pattern=3, max_gap=4, vocab=8),
    Sorting(length=4, size=8),
    DyckK(kinds=3, length=6),
    Parity(length=5),
    ModularSum(length=5, modulus=5),
]
HARDER = [
    Mqar(),
    Mqar(pairs=16, vocab=64, power_a=1.0),
    Mqar(pairs=1, length=8, vocab=100),
    MadRecall(),
    MadRecall(vocab=128, length=32),
    MadRecall(vocab=9, length=10),
    MadNoisyRecall(),
    MadNoisyRecall(length=64, noise_share=0.8, vocab=80),
    MadNoisyRecall(noise_share=0.0, length=12),
    MadFuzzyRecall(),
    MadFuzzyRecall(vocab=64, length=40, key_tokens=1, value_tokens=4),
    MadFuzzyRecall(vocab=6, length=20, key_tokens=2, value_tokens=1),
    MadSelectiveCopying(),
    MadSelectiveCopying(vocab=3, length=90, copies=40),
    MadCompression(),
    Induction(),
    Induction(pattern=2, min_gap=30, max_gap=30, vocab=8),
    Sorting(),
    Sorting(length=20, size=3),
    DyckK(),
    DyckK(kinds=128, depth=40, length=40),
    DyckK(kinds=2, depth=3, length=20),
    Parity(),
    Parity(length=20, labels="last"),
    ModularSum(),
    ModularSum(length=40, modulus=10_000, labels="last"),
]


def worked_example(task: Task) -> tuple[list[int], Labels]:
    """The tokens and labels at the top of a task's file."""
    page = sys.modules[type(task).__module__].__doc__
    token = {task.token_name(token): token for token in range(task.token_count)}
    rows = [
        re.search(rf"^    {word} +(.*?)( {{3,}}.*)?$", page, re.M) for word in ("tokens", "labels")
    ]
    # Aligned: a label stands right under its token.
    starts = [
        [match.start() for match in re.finditer(r"\S+", row[0].removesuffix(row[2] or ""))]
        for row in rows
    ]
    assert starts[0] == starts[1]
    tokens = [token[word] for word in re.split(r" +", rows[0][1])]
    return tokens, [token.get(word) for word in re.split(r" +", rows[1][1])]


def described(task: Task) -> str:
    return re.sub(r"\w+=", "", str(task)).replace(" ", "")


@pytest.mark.parametrize("task", WORKED, ids=lambda task: type(task).__name__)
def test_the_worked_example_has_the_labels_that_its_tokens_imply(task: Task) -> None:
    tokens, labels = worked_example(task)
    assert len(tokens) == task.positions
    assert SOLVERS[type(task)](task, tokens) == labels


def test_the_example_that_zoology_publishes_is_one_of_ours() -> None:
    """Of `multiquery_ar`, with a vocabulary of 12 and 2 pairs in 16 tokens: keys are 1..5, values
    6..11, and queries take the first token of a slot. The published row leaves its last token out.
    """
    task = Mqar(pairs=2, length=16, vocab=12)
    tokens = [2, 8, 4, 7, 0, 0, 4, 0, 0, 0, 0, 0, 2, 0, 0, 0]
    assert solve_mqar(task, tokens) == [*6 * [None], 7, *5 * [None], 8, *3 * [None]]
    drawn = task.draw(np.random.default_rng(0), 200_000)
    assert tokens in drawn.tokens[(drawn.tokens[:, :4] == tokens[:4]).all(1)].tolist()


@pytest.mark.parametrize("task", HARDER, ids=described)
def test_a_solver_finds_every_label_of_a_held_out_set(task: Task) -> None:
    task.check()
    examples = task.split(seed=1, train=0, test=300)[1]
    for tokens, labels in zip(examples.tokens.tolist(), examples.labels.tolist(), strict=True):
        found = SOLVERS[type(task)](task, tokens)
        assert len(tokens) == task.positions
        assert [IGNORE_INDEX if label is None else label for label in found] == labels


def test_with_random_filler_the_queries_are_answered_from_the_pairs() -> None:
    """A filler may be a key by chance, and is not asked then."""
    task = Mqar(pairs=8, length=40, vocab=32, random_filler=True)
    examples = task.split(seed=0, train=0, test=300)[1]
    for tokens, labels in zip(examples.tokens.tolist(), examples.labels.tolist(), strict=True):
        asked = [place for place, label in enumerate(labels) if label != IGNORE_INDEX]
        solved = solve_mqar(task, tokens)
        assert sorted(tokens[place] for place in asked) == sorted(tokens[:16:2])
        assert all(labels[place] == solved[place] and place % 2 == 0 for place in asked)


@pytest.mark.parametrize("task", [MadMemorization(), MadMemorization(vocab=12, length=16)])
def test_memorized_values_are_those_of_the_training_set(task: MadMemorization) -> None:
    task.check()
    stream, test = task.split(seed=5, train=0, test=200)
    value, ask = {}, task.vocab - 1
    batch = stream.batch(0, 1000)
    for tokens, labels in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
        value |= dict(zip(tokens[::2], labels[1::2], strict=True))
    assert set(value) == set(range((task.vocab - 1) // 2))
    for tokens, labels in zip(test.tokens.tolist(), test.labels.tolist(), strict=True):
        assert tokens[1::2] == [ask] * (task.length // 2)
        assert labels[::2] == [IGNORE_INDEX] * (task.length // 2)
        assert labels[1::2] == [value[key] for key in tokens[::2]]

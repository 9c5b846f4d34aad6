"""Every generator against a slow, obvious reference in plain Python."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.errors import ConfigError
from mixit_titan.tasks.addition import Addition
from mixit_titan.tasks.dyck import ASK, NO, START, YES, Dyck
from mixit_titan.tasks.dyck_k import DyckK
from mixit_titan.tasks.evaluation import Score
from mixit_titan.tasks.examples import (
    Examples,
    belongs_to,
    draw_distinct,
    draw_split,
)
from mixit_titan.tasks.hop import Hop
from mixit_titan.tasks.imitation import Imitation
from mixit_titan.tasks.induction import Induction
from mixit_titan.tasks.mad_compression import MadCompression
from mixit_titan.tasks.mad_fuzzy_recall import MadFuzzyRecall
from mixit_titan.tasks.mad_memorization import MadMemorization
from mixit_titan.tasks.mad_noisy_recall import MadNoisyRecall
from mixit_titan.tasks.mad_recall import MadRecall
from mixit_titan.tasks.mad_selective_copying import MadSelectiveCopying
from mixit_titan.tasks.memorization import Memorization
from mixit_titan.tasks.modular import Modular
from mixit_titan.tasks.modular_sum import ModularSum
from mixit_titan.tasks.mqar import Mqar
from mixit_titan.tasks.parity import Parity
from mixit_titan.tasks.retrieval import Retrieval
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.sorting import Sorting
from mixit_titan.tasks.task import Task

DRAWN = [
    Addition(digits=6),
    Retrieval(pairs=7, vocab=40),
    Hop(hops=5, length=30),
    Dyck(length=20),
    Mqar(pairs=2, length=12, vocab=16),
    MadRecall(length=12),
    MadNoisyRecall(length=12),
    MadFuzzyRecall(length=20),
    MadSelectiveCopying(length=20, copies=4),
    MadCompression(length=8),
    MadMemorization(vocab=32, length=10),
    Induction(pattern=2, max_gap=8, vocab=8),
    Sorting(length=8),
    DyckK(kinds=4, length=12),
    Parity(length=20),
    ModularSum(length=10),
]


def draw(task: object, count: int = 300, seed: int = 0) -> Examples:
    return task.draw(np.random.default_rng(seed), count)


def written(task: object, examples: Examples) -> list[tuple[str, str]]:
    return [task.write(*row) for row in zip(examples.tokens, examples.labels, strict=True)]


@pytest.mark.parametrize("digits", [1, 3, 10, 18])
def test_addition_is_addition(digits: int) -> None:
    task = Addition(digits=digits)
    for question, answer in written(task, draw(task)):
        a, b = question.split("+")
        assert len(a) == len(b) == digits and int(a) + int(b) == int(answer)


@pytest.mark.parametrize("labels", ["answer", "official"])
def test_addition_in_tokens(labels: str) -> None:
    task = Addition(digits=2, labels=labels)
    examples = draw(task, 50)
    for tokens, asked, (question, _) in zip(
        examples.tokens, examples.labels, written(task, examples), strict=True
    ):
        a, b = question.split("+")
        digits = [int(d) for d in reversed(f"{int(a) + int(b):03d}")]
        row = [int(d) for d in reversed(a)] + [10] + [int(d) for d in reversed(b)] + [11]
        row += [12 + d for d in digits]
        assert tokens.tolist() == row
        # Position 5 is `=`. The authors' mask leaves out the first digit and asks for the stop.
        asks = [*digits, None] if labels == "answer" else [None, *digits[1:], 10]
        answers = [IGNORE_INDEX if digit is None else 12 + digit for digit in asks]
        assert asked.tolist() == [IGNORE_INDEX] * 5 + answers


@pytest.mark.parametrize(
    "task", [Retrieval(pairs=8), Retrieval(pairs=5, vocab=10), Retrieval(pairs=3, vocab=64, keys=4)]
)
def test_retrieval_asks_for_the_value_of_a_key(task: Retrieval) -> None:
    examples = draw(task, 2000)
    pairs_seen, asked_seen = Counter(), Counter()
    for tokens, labels, (question, answer) in zip(
        examples.tokens, examples.labels, written(task, examples), strict=True
    ):
        *pairs, key = (int(word) for word in question.split())
        keys, values = pairs[::2], pairs[1::2]
        assert len(set(keys)) == len(keys) and int(answer) == values[keys.index(key)]
        assert all(task.vocab - task.all_keys <= k < task.vocab for k in keys)
        assert all(0 <= v < task.vocab // 2 for v in values)
        place = len(pairs)
        assert labels[place] == int(answer) and (labels != IGNORE_INDEX).sum() == 1
        assert (tokens[place + 1 :] == task.vocab).all()
        pairs_seen[len(keys)] += 1
        asked_seen[keys.index(key)] += 1
    assert set(pairs_seen) == set(range(1, task.pairs + 1))
    assert set(asked_seen) == set(range(task.pairs))


def hop(word: str, k: int) -> str:
    answer = ""
    for place in range(len(word)):
        for _ in range(k):
            earlier = word.rfind(word[place], 0, place) if place is not None else -1
            place = earlier + 1 if earlier >= 0 else None
        answer += "_" if place is None else word[place]
    return answer


def test_the_hops_of_the_paper() -> None:
    assert hop("adcada", 2) == "_____c"


@pytest.mark.parametrize("task", [Hop(), Hop(hops=0, length=9), Hop(hops=7, length=40, letters=2)])
def test_hop_follows_the_last_occurrence(task: Hop) -> None:
    examples = draw(task)
    seen = set()
    for question, answer in written(task, examples):
        k, word = question.split()
        assert all(a != b for a, b in pairwise(word))
        assert answer == hop(word, int(k))
        seen.add(int(k))
    assert seen == set(range(task.hops + 1))
    assert (examples.labels[:, 0] == IGNORE_INDEX).all()


def test_modular_splits_all_pairs_in_two() -> None:
    task = Modular(modulus=11)
    stream, test = task.split(seed=0, train=80, test=0)
    train = stream.batch(0, 80)  # one epoch
    pairs = [tuple(row) for row in np.concatenate([train.tokens, test.tokens]).tolist()]
    assert sorted(pairs) == [(a, b) for a in range(11) for b in range(11)]
    for question, answer in written(task, train) + written(task, test):
        a, b = question.removesuffix(" mod 11").split("+")
        assert int(answer) == (int(a) + int(b)) % 11


def balanced(sequence: str) -> bool:
    while "()" in sequence:
        sequence = sequence.replace("()", "")
    return sequence == ""


def deepest(sequence: str) -> int:
    heights = [sequence[:n].count("(") - sequence[:n].count(")") for n in range(len(sequence) + 1)]
    return max(heights)


@pytest.mark.parametrize("length", [2, 8, 40])
def test_dyck_knows_what_is_balanced(length: int) -> None:
    task = Dyck(length=length)
    examples = draw(task, 600)
    for tokens, (question, answer), depth in zip(
        examples.tokens, written(task, examples), examples.slices["depth"][:, 0], strict=True
    ):
        assert len(question) == length and answer == ("yes" if balanced(question) else "no")
        assert depth == deepest(question)
        assert (tokens[0], tokens[-1]) == (START, ASK)
    assert set(examples.labels[:, -1]) == {YES, NO}
    assert 0.4 < (examples.labels[:, -1] == YES).mean() < 0.6


def test_every_balanced_sequence_is_as_likely_as_the_others() -> None:
    task = Dyck(length=6)
    counts = Counter(q for q, answer in written(task, draw(task, 4000)) if answer == "yes")
    assert len(counts) == 5  # Catalan(3)
    mean = counts.total() / 5
    assert all(0.8 * mean < count < 1.2 * mean for count in counts.values())


def test_memorization_has_one_value_for_each_pair() -> None:
    task = Memorization(keys=9, values=5, vocab=20)
    stream, test = task.split(seed=3, train=0, test=0)
    answers = dict(written(task, test))
    assert set(answers) == {f"{a} {b}" for a in range(9) for b in range(9)}
    assert set(answers.values()) == set("01234")
    assert dict(written(task, stream.batch(0, 81))) == answers
    other = dict(written(task, task.split(seed=4, train=0, test=0)[1]))
    assert other != answers


def test_memorization_counts_the_bits_of_table_4() -> None:
    perfect = Score(loss=0.0, accuracy=1.0, exact=1.0)
    assert Memorization().figures(perfect, 1000) == {"bits_per_parameter": 9 * 512**2 / 1000}
    figures = Memorization().figures(perfect, 790400)
    assert figures["bits_per_parameter"] == pytest.approx(2.98, abs=0.006)


def test_imitation_asks_for_the_targets_favourite() -> None:
    task = Imitation(target_width=8, target_layers=1, vocab=7, length=5)
    examples = draw(task, 20)
    assert np.allclose(np.exp(examples.targets).sum(-1), 1, atol=1e-5)
    assert (examples.targets.argmax(-1) == examples.labels).all()
    # It depends on the tokens before, not only on the last one, and on none that follow.
    again = examples.tokens.copy()
    again[:, 3] = (again[:, 3] + 1) % 7
    with torch.no_grad():
        logits = task._target(torch.from_numpy(again).long()).numpy()
        before = task._target(torch.from_numpy(examples.tokens).long()).numpy()
    assert np.allclose(logits[:, :3], before[:, :3], atol=1e-5)
    assert np.abs(logits[:, 4] - before[:, 4]).max() > 0.1


@pytest.mark.parametrize("task", DRAWN, ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("train", [0, 500])
def test_train_and_test_are_disjoint(task: object, train: int) -> None:
    stream, test = task.split(seed=0, train=train, test=200)
    tested = {tuple(row) for row in test.tokens.tolist()}
    assert len(tested) == 200
    for step in range(10):
        trained = {tuple(row) for row in stream.batch(step, 200).tokens.tolist()}
        assert not trained & tested
    # Nor does the test set of one seed meet the training set of another.
    other = task.split(seed=1, train=train, test=1)[0].batch(0, 500)
    assert not {tuple(row) for row in other.tokens.tolist()} & tested


def test_a_listed_set_is_seen_once_an_epoch() -> None:
    stream, _ = Addition(digits=4).split(seed=0, train=100, test=10)
    rows = [tuple(row) for step in range(4) for row in stream.batch(step, 50).tokens.tolist()]
    assert Counter(rows) == dict.fromkeys(rows, 2) and len(set(rows)) == 100
    assert set(rows[:100]) == set(rows[100:]) and rows[:100] != rows[100:]


@pytest.mark.parametrize("task", DRAWN, ids=lambda task: type(task).__name__)
def test_a_batch_is_a_function_of_seed_and_step(task: object) -> None:
    def batch(seed: int, step: int) -> list:
        return task.split(seed=seed, train=0, test=1)[0].batch(step, 16).tokens.tolist()

    assert batch(0, 5) == batch(0, 5) != batch(0, 6)
    assert batch(0, 5) != batch(1, 5)


def test_one_drawn_example_in_eight_is_for_testing() -> None:
    share = belongs_to(draw(Retrieval(), 20_000), "test").mean()
    assert 0.11 < share < 0.14


def test_three_splits_have_every_example_once() -> None:
    examples = draw(Retrieval(), 2000)
    sides = [belongs_to(examples, s) for s in ("test", "validation", "train without validation")]
    assert (np.sum(sides, axis=0) == 1).all() and all(side.sum() > 150 for side in sides)
    assert (belongs_to(examples, "train") == (sides[1] | sides[2])).all()


def test_a_split_keeps_each_example_together() -> None:
    """Tokens, labels and slices of a row stay those of one example through filters and refills."""
    task = Retrieval(pairs=4, vocab=12)
    examples = draw_split(task.draw, np.random.default_rng(0), 3000, "test")
    assert len(examples) == 3000
    for (question, answer), pairs in zip(
        written(task, examples), examples.slices["pairs"][:, 0], strict=True
    ):
        *items, key = question.split()
        assert items[1::2][items[::2].index(key)] == answer and len(items) == 2 * pairs


def test_too_few_examples_for_a_test_set() -> None:
    with pytest.raises(ConfigError, match=r"only .* different test examples at this difficulty"):
        draw_distinct(Dyck(length=4).draw, np.random.default_rng(0), 50, "test")


def test_no_example_at_all_for_a_test_set() -> None:
    def draw(rng: np.random.Generator, count: int) -> Examples:
        return Examples(np.full((count, 1), 5), np.zeros((count, 1)))  # one question, for training

    split = "train" if belongs_to(draw(None, 1), "test").all() else "test"
    with pytest.raises(ConfigError, match=f"there is no {split} example at this difficulty"):
        draw_split(draw, np.random.default_rng(0), 3, split)


IMPOSSIBLE = {
    "--digits is 0": Addition(digits=0),
    "--pairs is 9 and there are only 8": Retrieval(pairs=9, vocab=16),
    "only 8 tokens for keys": Retrieval(pairs=2, vocab=16, keys=9),
    "only 4 different keys": Retrieval(pairs=5, keys=4),
    "--letters is 1": Hop(letters=1),
    "--hops is -1": Hop(hops=-1),
    "--modulus is 1": Modular(modulus=1),
    "even length": Dyck(length=7),
    "--vocab is 1024": Memorization(keys=600),
    "multiple of 8": Imitation(target_width=12),
    "--pairs is 0: ": Mqar(pairs=0),
    "--pairs 17 and their queries take an even length of at least 68": Mqar(pairs=17),
    "--length is 65: .* an even length of at least 16": Mqar(length=65),
    "vocabulary of --vocab 8 has only 3 keys": Mqar(vocab=8),
    "--power-a is 0.0": Mqar(power_a=0.0),
    "--power-a is nan": Mqar(power_a=float("nan")),
    "--length is 9: pairs of tokens": MadRecall(length=9),
    "--vocab is 1: a key and a value": MadRecall(vocab=1),
    "--length is 2: pairs of tokens": MadNoisyRecall(length=2),
    "--noise-share is 1.0": MadNoisyRecall(noise_share=1.0),
    "--noise-vocab is 31 of --vocab 32": MadNoisyRecall(noise_vocab=31),
    "--noise-vocab is 0 of": MadNoisyRecall(noise_vocab=0),
    "--key-tokens is 8: .* at most 7": MadFuzzyRecall(key_tokens=8),
    "--value-tokens is 9: .* at most 8": MadFuzzyRecall(value_tokens=9),
    "--length is 10: .* at least 11": MadFuzzyRecall(length=10),
    "--vocab is 2: a token, a blank": MadSelectiveCopying(vocab=2),
    "--copies is 0": MadSelectiveCopying(copies=0),
    "--copies 128 of tokens, .* at least 258": MadSelectiveCopying(copies=128),
    "--vocab is 2: two tokens": MadCompression(vocab=2),
    "--length is 1: a token": MadCompression(length=1),
    "--vocab is 2: a key, a value": MadMemorization(vocab=2),
    "--length is 7: keys": MadMemorization(length=7),
    "--pattern is 1": Induction(pattern=1),
    "--min-gap is 58: it must be in 0..57": Induction(min_gap=58),
    "--vocab is 4: --pattern 4 .* at least 5": Induction(vocab=4),
    "--length is 1: it takes": Sorting(length=1),
    "--size is 1": Sorting(size=1),
    "--length is 5: a balanced": DyckK(length=5),
    "--kinds is 0": DyckK(kinds=0),
    "--depth is 0": DyckK(depth=0),
    "--length is 0": Parity(length=0),
    "--modulus is 10001": ModularSum(modulus=10_001),
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_an_impossible_difficulty_is_one_sentence(message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        Run(task=IMPOSSIBLE[message], settings=Settings()).check()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("task", "split", "message"),
    [
        (Modular(modulus=5), {"train": 25, "test": 0}, "the 25 pairs of --modulus 5"),
        (Memorization(), {"train": 5, "test": 0}, "all of its pairs"),
    ],
)
def test_an_impossible_split_is_one_sentence(
    task: Task, split: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        task.split(seed=0, **split)

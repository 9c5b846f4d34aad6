"""How often things come in a task, beside what its paper's definition says of it.

The definitions are those of Arora et al. (arXiv 2312.04927), Poli et al. (arXiv 2403.17844) and
Hewitt et al. (arXiv 2010.07515), and the published generators of the first two.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import groupby
from math import comb

import numpy as np
import pytest
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.tasks.distinct import distinct
from mixit_titan.tasks.dyck_k import DyckK
from mixit_titan.tasks.examples import octave
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

COUNT = 10_000


def rows(task: Task, count: int = COUNT) -> tuple[list[list[int]], list[list[int]]]:
    task.check()
    examples = task.draw(np.random.default_rng(0), count)
    return examples.tokens.tolist(), examples.labels.tolist()


def assert_follows(found: Iterable[Hashable], law: Mapping[Hashable, float]) -> None:
    """Independent draws come as often as a law says, within 5 standard deviations."""
    counts = Counter(found)
    total = counts.total()
    assert set(counts) <= set(law)
    for value, share in law.items():
        spread = (share * (1 - share) / total) ** 0.5
        assert abs(counts[value] / total - share) <= 5 * spread, (value, counts[value], share)


def uniform(values: Iterable[Hashable]) -> dict[Hashable, float]:
    values = list(values)
    return dict.fromkeys(values, 1 / len(values))


def test_draws_without_repeats_are_uniform() -> None:
    columns = distinct(np.random.default_rng(0), 4, 3, COUNT).T.tolist()
    orders = [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]
    assert_follows(map(tuple, columns), uniform(o for o in orders if len(set(o)) == 3))


def test_an_octave_is_the_power_of_two_below() -> None:
    found = octave(np.array([0, 1, 2, 3, 4, 7, 8, 1023, 1024])).tolist()
    assert found == [0, 1, 2, 2, 4, 4, 8, 512, 1024]


@pytest.mark.parametrize("power_a", [0.01, 1.0, 0.5])
def test_the_gaps_of_mqar_follow_the_power_law(power_a: float) -> None:
    """The first key takes slot i with p_i proportional to i^(a - 1); the second takes slot j with
    the same law among the slots that are left: the sum over i of p_i p_j / (1 - p_i)."""
    task = Mqar(pairs=3, length=26, vocab=40, power_a=power_a)
    slots = (26 - 6) // 2
    weights = [i ** (power_a - 1) for i in range(1, slots + 1)]
    p = [weight / sum(weights) for weight in weights]
    places = ([], [])
    for tokens in rows(task)[0]:
        for pair, found in enumerate(places):
            found.append((tokens.index(tokens[2 * pair], 6) - 6) // 2)
    assert_follows(places[0], dict(enumerate(p)))
    second = {
        j: sum(p[i] * p[j] / (1 - p[i]) for i in range(slots) if i != j) for j in range(slots)
    }
    assert_follows(places[1], second)


def test_mqar_repeats_no_key_and_no_value() -> None:
    task = Mqar(pairs=5, length=30, vocab=16)
    tokens_NL, labels_NL = rows(task)
    for tokens, labels in zip(tokens_NL, labels_NL, strict=True):
        keys, values = tokens[0:10:2], tokens[1:10:2]
        assert len(set(keys)) == len(set(values)) == 5
        assert sorted(label for label in labels if label != IGNORE_INDEX) == sorted(values)
        assert sum(token != 0 for token in tokens) == 15
    assert_follows((tokens[0] for tokens in tokens_NL), uniform(range(1, 8)))
    assert_follows((tokens[8] for tokens in tokens_NL), uniform(range(1, 8)))
    assert_follows((tokens[9] for tokens in tokens_NL), uniform(range(8, 16)))


def test_mqar_fills_up_with_zeros_or_with_any_token() -> None:
    filled = rows(Mqar(pairs=1, length=40, vocab=8, random_filler=True), 2000)[0]
    assert_follows((tokens[39] for tokens in filled), uniform(range(8)))  # never that of a query
    assert {tokens[39] for tokens in rows(Mqar(pairs=1, length=40, vocab=8))[0]} == {0}


def test_mqar_says_how_far_a_query_is() -> None:
    examples = Mqar(pairs=3, length=20, vocab=40).draw(np.random.default_rng(0), 200)
    for tokens, labels, distances in zip(
        examples.tokens.tolist(),
        examples.labels.tolist(),
        examples.slices["distance"].tolist(),
        strict=True,
    ):
        for place, label in enumerate(labels):
            if label != IGNORE_INDEX:
                distance = place - tokens.index(tokens[place])
                assert distances[place] <= distance < 2 * distances[place]


def test_recall_asks_for_keys_that_were_there() -> None:
    """At the pair after s others, a key of 8 was there with probability 1 - (7/8)^s."""
    tokens_NL, labels_NL = rows(MadRecall(vocab=16, length=24))
    assert_follows((tokens[0] for tokens in tokens_NL), uniform(range(8)))
    assert_follows((tokens[20] for tokens in tokens_NL), uniform(range(8)))
    assert_follows((tokens[1] for tokens in tokens_NL), uniform(range(8, 16)))
    for pair in range(11):
        again = 1 - (7 / 8) ** pair
        asked = (labels[2 * pair] != IGNORE_INDEX for labels in labels_NL)
        assert_follows(asked, {True: again, False: 1 - again})
    assert all(labels[-1] != IGNORE_INDEX for labels in labels_NL)


def test_the_last_key_of_recall_is_any_of_those_before() -> None:
    """Each different key alike, however often it was there."""
    last = Counter()
    for tokens in rows(MadRecall(vocab=4, length=8))[0]:
        keys = tokens[0:6:2]
        if sorted(keys) == [0, 0, 1]:
            last[tokens[-1]] += 1
    assert_follows(last.elements(), uniform([0, 1]))


@pytest.mark.parametrize("noise", [0.0, 0.2, 0.8])
def test_the_share_of_noise(noise: float) -> None:
    """Of the places before the last, one always holds a pair."""
    task = MadNoisyRecall(length=24, noise_share=noise)
    places, tokens_NL = 12, rows(task)[0]
    is_noise = [[tokens[2 * n] >= 16 for n in range(places)] for tokens in tokens_NL]
    assert not any(row[-1] for row in is_noise) and not any(all(row[:-1]) for row in is_noise)
    share = noise * (places - 2) / (places - 1)
    for n in (0, 5, 10):
        assert_follows((row[n] for row in is_noise), {True: share, False: 1 - share})
    for tokens, row in zip(tokens_NL, is_noise, strict=True):
        for n in range(places - 1):
            key, value = tokens[2 * n : 2 * n + 2]
            assert (16 <= key < 32 and 16 <= value < 32) if row[n] else key < 8 <= value < 16
    if noise:
        assert_follows((t[2] for t in tokens_NL if t[2] >= 16), uniform(range(16, 32)))
        assert_follows((t[3] for t in tokens_NL if t[3] >= 16), uniform(range(16, 32)))


def test_fuzzy_keys_and_values_have_one_to_three_different_tokens() -> None:
    """7 tokens of keys and 8 of values at a vocabulary of 16, the last of which fills up."""
    sizes = ([], [])
    for tokens in rows(MadFuzzyRecall(length=40), 4000)[0]:
        body = [token for token in tokens if token != 15]
        assert tokens == [15] * (40 - len(body)) + body and len(body) > 40 - 2 * 6
        runs = [list(run) for _, run in groupby(body, lambda token: token >= 7)]
        assert all(len(set(run)) == len(run) <= 3 for run in runs)
        for n in (0, 1):
            sizes[n].append(len(runs[n]))
            assert all((token >= 7) == (n == 1) for token in runs[n])
    for found in sizes:
        assert_follows(found, uniform([1, 2, 3]))


def test_the_last_fuzzy_pair_is_any_of_those_before() -> None:
    """Keys and values of one token: four pairs, and the key of one of them again."""
    places = [
        tokens.index(tokens[-1])
        for tokens in rows(MadFuzzyRecall(vocab=64, length=9, key_tokens=1, value_tokens=1))[0]
        if len(set(tokens[0:8:2])) == 4
    ]
    assert len(places) > COUNT / 2
    assert_follows(places, uniform([0, 2, 4, 6]))


def test_fuzzy_slices_are_the_sizes_of_the_keys() -> None:
    examples = MadFuzzyRecall(length=40).draw(np.random.default_rng(0), 300)
    seen = set()
    for tokens, labels, sizes in zip(
        examples.tokens.tolist(),
        examples.labels.tolist(),
        examples.slices["key_tokens"].tolist(),
        strict=True,
    ):
        for place, label in enumerate(labels):
            assert (label == IGNORE_INDEX) == (sizes[place] == 0)
            if label != IGNORE_INDEX and tokens[place] < 7:  # the last token of a key
                size = 1
                while place >= size and tokens[place - size] < 7:
                    size += 1
                assert sizes[place] == size
                seen.add(size)
    assert seen == {1, 2, 3}


def test_each_blank_of_selective_copying_is_before_any_of_the_tokens() -> None:
    """So the blanks before the first token are binomial: of 5 blanks, each with chance 1/4."""
    tokens_NL, labels_NL = rows(MadSelectiveCopying(vocab=6, length=14, copies=4))
    law = {k: comb(5, k) * 0.25**k * 0.75 ** (5 - k) for k in range(6)}
    assert_follows((next(n for n, t in enumerate(ts) if t != 4) for ts in tokens_NL), law)
    assert all(tokens[8] < 4 and tokens[9] == 5 for tokens in tokens_NL)
    assert all(tokens[10:] == [4] * 4 for tokens in tokens_NL)
    assert_follows((labels[-1] for labels in labels_NL), uniform(range(4)))


@pytest.mark.parametrize("vocab", [256, 9])
def test_the_values_of_mads_memorization_are_all_different(vocab: int) -> None:
    task = MadMemorization(vocab=vocab, length=16)
    keys = (vocab - 1) // 2
    tables = [task.values(seed).tolist() for seed in range(3)]
    for table in tables:
        assert len(table) == len(set(table)) == keys
        assert all(keys <= value < vocab - 1 for value in table)
    assert tables[0] != tables[1] != tables[2]
    stream, test = task.split(seed=1, train=0, test=100)
    assert test.labels[:, 1::2].tolist() == np.array(tables[1])[test.tokens[:, ::2]].tolist()
    assert_follows(stream.batch(0, COUNT).tokens[:, 0].tolist(), uniform(range(keys)))


def test_what_is_drawn_uniformly() -> None:
    for task, law in (
        (MadCompression(vocab=6, length=8), uniform(range(5))),
        (Sorting(length=5, size=7), uniform(range(7))),
        (Parity(length=9), uniform(range(2))),
        (ModularSum(length=9, modulus=7), uniform(range(7))),
    ):
        tokens_NL, labels_NL = rows(task)
        assert_follows((tokens[0] for tokens in tokens_NL), law)
        assert_follows((tokens[3] for tokens in tokens_NL), law)
        if not isinstance(task, Sorting | MadCompression):  # no sum is likelier than another
            assert_follows((labels[-1] for labels in labels_NL), law)


def test_the_gaps_of_induction_are_uniform_and_its_pattern_is_nowhere_else() -> None:
    task = Induction(pattern=3, min_gap=2, max_gap=9, vocab=10)
    examples = task.draw(np.random.default_rng(0), COUNT)
    gaps = []
    for tokens, octaves in zip(
        examples.tokens.tolist(), examples.slices["gap"].tolist(), strict=True
    ):
        first = tokens.index(tokens[-2])
        gaps.append(len(tokens) - 2 - (first + 3))
        assert octaves[0] <= gaps[-1] < 2 * octaves[0]
        counts = Counter(tokens)
        assert [counts[tokens[first + n]] for n in range(3)] == [2, 2, 1]
    assert_follows(gaps, uniform(range(2, 10)))
    assert_follows(examples.tokens[:, -1].tolist(), uniform(range(10)))
    assert_follows(examples.tokens[:, -3].tolist(), uniform(range(10)))


def test_every_bounded_word_of_dyck_k_is_as_likely_as_the_others() -> None:
    """Of the 14 ways to balance 4 pairs, 1 nests 4 deep and 5 nest 3 deep."""
    words = {
        depth: {
            "".join("(" if token < 3 else ")" for token in tokens) + ")"
            for tokens in rows(DyckK(kinds=3, depth=depth, length=8), 2000)[0]
        }
        for depth in (1, 2, 3, 4, 9)
    }
    assert [len(found) for found in words.values()] == [1, 8, 13, 14, 14]
    tokens_NL, _ = rows(DyckK(kinds=3, depth=3, length=8))
    shapes = ("".join("(" if token < 3 else ")" for token in tokens) + ")" for tokens in tokens_NL)
    assert_follows(shapes, uniform(words[3]))
    assert_follows((tokens[0] for tokens in tokens_NL), uniform(range(3)))
    opened = [tokens[1] for tokens in tokens_NL if tokens[1] < 3]
    assert_follows(opened, uniform(range(3)))


def test_dyck_k_says_how_deep_the_closed_bracket_is() -> None:
    examples = DyckK(kinds=2, depth=4, length=20).draw(np.random.default_rng(0), 200)
    for tokens, labels, depths in zip(
        examples.tokens.tolist(),
        examples.labels.tolist(),
        examples.slices["depth"].tolist(),
        strict=True,
    ):
        for place, label in enumerate(labels):
            if label != IGNORE_INDEX:
                opened = sum(1 if token < 2 else -1 for token in tokens[: place + 1])
                assert depths[place] == opened

"""Rows of a source pass after pass."""

import numpy as np

from mixit_titan.data.passes import Passes
from mixit_titan.data.permutation import permuted


def test_without_a_change_each_pass_is_a_permutation_of_its_own() -> None:
    passes = Passes([(0, 11)], seed=3)
    expected = [permuted(np.arange(11), 11, seed=3, epoch=epoch) for epoch in range(4)]
    assert passes.find(np.arange(44)).tolist() == np.concatenate(expected).tolist()
    assert [passes.number(n) for n in (0, 10, 11, 43, 44)] == [0, 0, 1, 3, 4]


def test_added_rows_come_in_the_pass_that_is_under_way() -> None:
    before = Passes([(0, 5)], seed=1)
    for given in range(1, 16):
        after = before.lengthened(8, given)
        now = (given - 1) // 5
        end = 5 * (now + 1)  # of the old rows of this pass
        assert (after.find(np.arange(end)) == before.find(np.arange(end))).all()
        found = after.find(np.arange(end, end + 3 + 16))
        assert sorted(found[:3]) == [5, 6, 7]
        assert sorted(found[3:11]) == sorted(found[11:]) == list(range(8))
        assert [after.number(end + n) for n in (-1, 0, 2, 3, 10, 11)] == [
            *(now, now, now, now + 1, now + 1, now + 2)
        ]


def test_a_source_can_be_made_longer_more_than_once() -> None:
    """Also twice in one pass."""
    twice = Passes([(0, 4)], seed=0).lengthened(6, 3).lengthened(9, 5)
    found = twice.find(np.arange(9 + 9))
    assert [sorted(part) for part in np.split(found, [4, 6, 9])] == [
        *([0, 1, 2, 3], [4, 5], [6, 7, 8], [*range(9)])
    ]
    later = twice.lengthened(10, 9 + 9 + 1)
    found = later.find(np.arange(9 + 9, 9 + 9 + 10 + 10))
    assert [sorted(part) for part in np.split(found, [9, 10])] == [
        *([*range(9)], [9], [*range(10)])
    ]
    again = Passes(later.lengths, seed=0)
    assert (again.find(np.arange(60)) == later.find(np.arange(60))).all()

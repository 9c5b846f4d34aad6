"""Splits and orders stay what they were: the values were recorded before the hashes moved."""

import numpy as np

from mixit_titan.data.permutation import permuted
from mixit_titan.data.splits import held_out
from mixit_titan.hashing import mix_bits, text_hash
from mixit_titan.tasks.examples import Examples, row_hashes
from mixit_titan.tasks.reviews import split_by_text


def test_the_finalizer_gives_the_published_sequence_of_splitmix64() -> None:
    """The first three outputs for seed 0 of Vigna's splitmix64.c."""
    states = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mix_bits(states).tolist() == published


def test_a_text_hash_is_the_beginning_of_the_standards_digest() -> None:
    """Of `abc`, the first example of FIPS 180-4."""
    assert text_hash(b"abc") == 0xBA7816BF8F01CFEA


def test_orders_and_splits_are_as_recorded() -> None:
    assert permuted(np.arange(10), 10, seed=3, epoch=2).tolist() == [9, 6, 1, 3, 8, 7, 4, 0, 2, 5]
    assert permuted(np.arange(5), 1000, seed=0, epoch=0).tolist() == [29, 364, 640, 865, 842]
    tokens = np.array([[1, 2, 3], [3, 2, 1]])
    hashes = row_hashes(Examples(tokens, tokens)).tolist()
    assert hashes == [13255853737081823287, 2619155259789542005]
    _, tested = split_by_text([("", f"review {n}") for n in range(40)])
    assert [int(text.split()[1]) for _, text in tested] == [8, 21, 27, 29]
    assert held_out(f"{n}.txt" for n in range(60)) == {"1.txt", "18.txt", "39.txt"}

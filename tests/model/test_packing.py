"""Expected values for a stream of documents, compared with counts on a long one."""

import numpy as np
import pytest

from mixit_titan.model.packing import Packing

LENGTHS = (256, 1024, 2048, 8192)


def stream() -> np.ndarray:
    """Lengths of documents."""
    return np.maximum(2, np.random.default_rng(0).lognormal(np.log(600), 1.0, 4000).astype(int))


@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_visible(length: int) -> None:
    document = np.repeat(np.arange(4000), stream())
    rows = document[: len(document) // length * length].reshape(-1, length)
    first, last = rows[:, ::128], rows[:, 127::128]
    seen = total = 0
    for query in range(first.shape[1]):
        for key in range(query + 1):
            seen += (last[:, key] >= first[:, query]).sum()
            total += len(rows)
    assert Packing(600, 1.0).visible(length) == pytest.approx(seen / total, rel=0.05)


@pytest.mark.parametrize("length", LENGTHS)
def test_documents_of_a_row_by_their_length(length: int) -> None:
    """A document that is cut by the end of a row is two."""
    ends = np.cumsum(stream())
    rows = ends[-1] // length
    cuts = np.union1d(ends[ends < rows * length], np.arange(rows + 1) * length)
    sizes = np.diff(cuts)
    for tokens in (0, 128, length // 2, length - 128):
        counted = (sizes >= tokens).sum() / rows
        expected = Packing(600, 1.0).documents(length, tokens)
        assert expected == pytest.approx(counted, rel=0.05, abs=0.03), tokens

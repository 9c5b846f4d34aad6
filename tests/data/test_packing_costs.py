"""What packing costs, compared with the rows that a loader would read."""

from pathlib import Path

import numpy as np
import pytest
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.data.packing import PACKINGS
from mixit_titan.data.packing_costs import packing_costs
from mixit_titan.data.prepare import prepare
from mixit_titan.data.shards import open_split
from mixit_titan.data.sources import find_corpus
from tests.data.tokens import documents


@pytest.mark.parametrize("seq_len", [16, 64, 100, 1000])
def test_costs_are_those_of_the_rows(corpus: str, tmp_path: Path, seq_len: int) -> None:
    out = tmp_path / "out"
    manifest = prepare(find_corpus(corpus), "bytes", out, workers=1, shard_tokens=3000)
    costs = packing_costs(out, manifest, "train", seq_len)
    split = open_split(out, "train")
    rows = PACKINGS["documents"](split, seq_len)
    labels = [rows.read(_one(row))[1] for row in range(rows.rows)]
    given = sum(int((each != IGNORE_INDEX).sum()) for each in labels)
    assert costs.padding == pytest.approx(1 - given / (rows.rows * seq_len))
    assert costs.tokens_cut_off == pytest.approx(1 - (given + rows.rows) / split.tokens)
    divided = start = 0
    for ids in documents(out, "train"):  # without the end of the text, which is no input
        divided += len({(start + place) // seq_len for place in range(len(ids))}) > 1
        start += len(ids) + 1
    assert costs.documents_split == divided / split.documents


def _one(row: int) -> np.ndarray:
    return np.array([row])

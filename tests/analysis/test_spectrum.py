"""Singular values of products, against matrices whose values are known and against NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from mixit_titan.analysis.hooks import attention_maps
from mixit_titan.analysis.spectrum import effective_rank, product_rows, start_spectrum
from mixit_titan.analysis.untrained import language_models
from mixit_titan.model.llama import MixitLlama


def test_effective_rank_counts_equal_values() -> None:
    values = torch.tensor([[2.0, 2, 2, 2], [3, 0, 0, 0], [1, 1, 0, 0]])
    assert effective_rank(values).tolist() == pytest.approx([4, 1, 2])
    p = np.array([0.5, 0.25, 0.25])
    expected = np.exp(-(p * np.log(p)).sum())
    assert effective_rank(torch.tensor([[4.0, 2, 2]])).item() == pytest.approx(expected)


def test_a_known_matrix() -> None:
    """Averaging of all rows keeps one direction; a diagonal is taken to a power."""
    average, diagonal = torch.full((4, 4), 0.25), torch.diag(torch.tensor([3.0, 2, 1, 1]))
    maps = [torch.stack([average, diagonal])] * 3
    both = product_rows("softmax", maps, [1, 3])
    assert [(row["kind"], row["layers"]) for row in both] == [("softmax", 1), ("softmax", 3)]
    first, third = (np.array(row["singular_values"]) for row in both)
    np.testing.assert_allclose(first, [(1 + 3) / 2, 2 / 2, 1 / 2, 1 / 2], atol=1e-9)
    np.testing.assert_allclose(third, [(1 + 27) / 2, 8 / 2, 1 / 2, 1 / 2], atol=1e-9)
    alone = product_rows("softmax", [m[:1] for m in maps], [3])
    assert alone[0]["effective_rank"] == pytest.approx(1)


def test_later_layers_multiply_from_the_left(
    build: Callable[..., MixitLlama], tokens: torch.Tensor
) -> None:
    maps = [m[0] for m in attention_maps(build("standard", layers=3), tokens)]
    row = product_rows("softmax", maps, [3])[0]
    one, two, three = (m.double().numpy() for m in maps)
    values = [np.linalg.svd(three[n] @ two[n] @ one[n], compute_uv=False) for n in range(4)]
    np.testing.assert_allclose(row["singular_values"], np.mean(values, 0), atol=1e-9)


def test_softmax_attention_collapses_to_rank_one_and_mixit_does_not() -> None:
    tokens = torch.randint(0, 50, (2, 32), generator=torch.Generator().manual_seed(0))
    start = language_models(tokens, width=64, heads=4, recipe="paper")
    found = start_spectrum(start, tokens[:1], [1, 4, 16])
    rank = {(row["kind"], row["layers"]): row["effective_rank"] for row in found["rows"]}
    assert found["length"] == 32 and len(rank) == 6
    assert rank["softmax", 16] < 1.1 < rank["softmax", 4] < rank["softmax", 1]
    assert rank["mixit", 16] > 28

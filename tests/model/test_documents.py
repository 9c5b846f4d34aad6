"""Several documents in a row: none of them affects the others."""

import itertools
from unittest import mock

import pytest
import torch

from mixit_titan.kernels.documents import document_table
from mixit_titan.model.mixers.positional import document_mask
from mixit_titan.model.recipes import RECIPES

from .conftest import MODELS, build

ROWS = ((7, 1, 9, 7), (24,), (1, 1, 1, 20, 1))  # lengths of the documents of each row
POSITIONS = torch.tensor([[i for length in row for i in range(length)] for row in ROWS])


@pytest.fixture
def packed() -> torch.Tensor:
    return torch.randint(0, 50, (3, 24), generator=torch.Generator().manual_seed(2))


def documents() -> list[tuple[int, slice]]:
    """Row and place of each document."""
    found = []
    for row, lengths in enumerate(ROWS):
        ends = list(itertools.accumulate(lengths))
        found += [(row, slice(e - n, e)) for e, n in zip(ends, lengths, strict=True)]
    return found


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_a_document_has_the_logits_that_it_has_alone(
    variant: str, recipe: str, packed: torch.Tensor
) -> None:
    model = build(variant, recipe)
    with torch.no_grad():
        together = model(packed, POSITIONS)
        for row, place in documents():
            alone = model(packed[row : row + 1, place])
            torch.testing.assert_close(together[row, place], alone[0])


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_changing_a_document_changes_no_other(
    variant: str, recipe: str, packed: torch.Tensor
) -> None:
    model = build(variant, recipe)
    with torch.no_grad():
        before = model(packed, POSITIONS)
        for row, place in documents():
            changed = packed.clone()
            changed[row, place] = (changed[row, place] + 1) % 50
            moved = (model(changed, POSITIONS) - before).abs().amax(-1) > 0
            expected = torch.zeros(3, 24, dtype=torch.bool)
            expected[row, place] = True
            assert torch.equal(moved, expected)


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_gradients_stay_within_a_document(variant: str, recipe: str, packed: torch.Tensor) -> None:
    """The loss of a packed row has the gradients of its documents' losses, one by one."""
    model = build(variant, recipe)
    model(packed, POSITIONS).logsumexp(-1).sum().backward()
    together = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for row, place in documents():
        model(packed[row : row + 1, place]).logsumexp(-1).sum().backward()
    for ours, parameter in zip(together, model.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_positions_of_one_document_change_nothing(
    variant: str, recipe: str, tokens: torch.Tensor
) -> None:
    model = build(variant, recipe)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens, torch.arange(24).expand(2, 24)), model(tokens))


@pytest.mark.parametrize("recipe", RECIPES)
def test_one_row_of_positions_serves_the_whole_batch(recipe: str, packed: torch.Tensor) -> None:
    model = build("mixit", recipe)
    with torch.no_grad():
        alike = model(packed, POSITIONS[:1])
        torch.testing.assert_close(alike, model(packed, POSITIONS[:1].expand(3, -1)))


def test_documents_are_looked_up_once_for_all_layers(packed: torch.Tensor) -> None:
    model = build("mixit", "paper")
    table = mock.Mock(wraps=document_table)
    with mock.patch("mixit_titan.model.llama.document_table", table), torch.no_grad():
        model(packed, POSITIONS)
    assert len(model.layers) > 1 and table.call_count == 1


def test_the_mask_by_hand() -> None:
    mask = document_mask(torch.tensor([[0, 1, 0, 0, 1, 2]]))
    expected = [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1, 1],
    ]
    assert mask.shape == (1, 1, 6, 6) and mask[0, 0].int().tolist() == expected

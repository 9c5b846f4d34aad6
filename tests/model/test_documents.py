"""Several documents in a row: none of them knows of the others."""

import itertools

import pytest
import torch

from mixit_titan.model.attention import document_mask

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

import dataclasses

import numpy as np
import pytest
import torch

from mixit_titan.kernels.mixing import MatrixSpec, draw_noise, mixing_matrix
from mixit_titan.model.recipes import RECIPES, Recipe
from mixit_titan.model.shapes import Shape

SHAPE = Shape(width=64, layers=3, heads=4, hidden=64, vocab=64, seq_len=200)


def spec(recipe: Recipe, seed: int = 0, seq_len: int = 200) -> MatrixSpec:
    return recipe.matrix_spec(seed, dataclasses.replace(SHAPE, seq_len=seq_len))


@pytest.mark.parametrize("name", RECIPES)
def test_row_sums_are_one(name: str) -> None:
    first = 1 if RECIPES[name].sink_head else 0
    for layer in range(3):
        sums = mixing_matrix(spec(RECIPES[name]), layer, range(4))[first:].sum(-1)
        assert (sums - 1).abs().max() < 1e-5


@pytest.mark.parametrize("length", [1, 2, 31, 128, 129, 200])
def test_matrix_is_the_formula(length: int) -> None:
    """A = I + W - mean(W), in float64, from the drawn W."""
    described = spec(RECIPES["paper"], seed=3, seq_len=length)
    ours = mixing_matrix(described, 2, [1])[0].double().numpy()
    w = draw_noise(3, 2, 1, torch.arange(length), length).double().numpy() / np.sqrt(64 * length)
    for i in range(length):
        visible = w[i, : i + 1]
        row = np.zeros(length)
        row[: i + 1] = visible - visible.mean()
        row[i] += 1
        assert np.abs(ours[i] - row).max() < 1e-6


def test_an_element_depends_on_nothing_but_its_place() -> None:
    described = spec(RECIPES["official"], seed=5)
    whole = mixing_matrix(described, 1, range(4))
    assert torch.equal(mixing_matrix(described, 1, [2])[0], whole[2])
    noise = draw_noise(5, 1, 2, torch.arange(200), 200)
    assert torch.equal(draw_noise(5, 1, 2, torch.tensor([7, 150]), 200), noise[[7, 150]])
    assert torch.equal(draw_noise(5, 1, 2, torch.arange(90), 90), noise[:90, :90])


def test_seed_layer_and_head_all_count() -> None:
    base = mixing_matrix(spec(RECIPES["paper"]), 0, [0, 1])
    others = [
        mixing_matrix(spec(RECIPES["paper"], seed=1), 0, [0])[0],
        mixing_matrix(spec(RECIPES["paper"], seed=1 << 32), 0, [0])[0],
        mixing_matrix(spec(RECIPES["paper"]), 1, [0])[0],
        base[1],
    ]
    rows, columns = torch.tril_indices(200, 200, offset=-1)
    for other in others:
        pair = torch.stack([base[0][rows, columns], other[rows, columns]])
        assert abs(torch.corrcoef(pair)[0, 1]) < 0.05


def test_standard_deviations_of_the_recipes() -> None:
    rows, columns = torch.tril_indices(200, 200, offset=-1)
    keep = rows > 100  # far enough down that centring takes little away

    def stds(recipe: Recipe) -> list[float]:
        a = mixing_matrix(spec(recipe), 0, range(4))
        return [float(a[h][rows[keep], columns[keep]].std()) for h in range(4)]

    for std in stds(RECIPES["paper"]):
        assert std == pytest.approx((64 * 200) ** -0.5, rel=0.03)
    for std in stds(Recipe(std=0.3)):
        assert std == pytest.approx(0.3, rel=0.03)
    spread = stds(Recipe(std="heads"))
    low, high = (200 * 16) ** -0.5, 200**-0.5
    assert all(0.97 * low < std < 1.03 * high for std in spread)
    assert max(spread) / min(spread) > 1.1


def test_nothing_is_drawn_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    first = mixing_matrix(spec(RECIPES["official"]), 0, range(2))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(mixing_matrix(spec(RECIPES["official"]), 0, range(2)), first)

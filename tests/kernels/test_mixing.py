import dataclasses

import numpy as np
import pytest
import torch

from mixit_titan.kernels import generated, triton_noise
from mixit_titan.kernels.mixing import MatrixSpec, draw_noise, mixing_matrix
from mixit_titan.model.recipes import RECIPES, Recipe
from mixit_titan.model.shapes import Shape

from ..model.numpy_philox import mixing_signs

NOISES = ["gaussian", "sign"]
SHAPE = Shape(width=64, layers=3, heads=4, hidden=64, vocab=64, seq_len=200)


def spec(recipe: Recipe, seed: int = 0, seq_len: int = 200) -> MatrixSpec:
    return recipe.matrix_spec(seed, dataclasses.replace(SHAPE, seq_len=seq_len))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", RECIPES)
def test_row_sums_are_one(name: str, noise: str) -> None:
    recipe = dataclasses.replace(RECIPES[name], noise=noise)
    first = 1 if recipe.sink_head else 0
    for layer in range(3):
        sums = mixing_matrix(spec(recipe), layer, range(4))[first:].sum(-1)
        assert (sums - 1).abs().max() < 1e-5


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("length", [1, 2, 31, 128, 129, 200])
def test_matrix_is_the_formula(length: int, noise: str) -> None:
    """A = I + W - mean(W), in float64, from the drawn W."""
    described = spec(Recipe(noise=noise), seed=3, seq_len=length)
    ours = mixing_matrix(described, 2, [1])[0].double().numpy()
    w = draw_noise(noise, 3, 2, 1, torch.arange(length), length).double().numpy()
    w /= np.sqrt(64 * length)
    for i in range(length):
        visible = w[i, : i + 1]
        row = np.zeros(length)
        row[: i + 1] = visible - visible.mean()
        row[i] += 1
        assert np.abs(ours[i] - row).max() < 1e-6


@pytest.mark.parametrize("noise", NOISES)
def test_an_element_depends_on_nothing_but_its_place(noise: str) -> None:
    described = spec(dataclasses.replace(RECIPES["official"], noise=noise), seed=5)
    whole = mixing_matrix(described, 1, range(4))
    assert torch.equal(mixing_matrix(described, 1, [2])[0], whole[2])
    drawn = draw_noise(noise, 5, 1, 2, torch.arange(200), 200)
    assert torch.equal(draw_noise(noise, 5, 1, 2, torch.tensor([7, 150]), 200), drawn[[7, 150]])
    assert torch.equal(draw_noise(noise, 5, 1, 2, torch.arange(90), 90), drawn[:90, :90])


def test_signs_are_one_bit_each_of_the_generator() -> None:
    """As NumPy's Philox has them: column j is bit j % 32 of word j // 32 % 4 of call j // 128."""
    ours = draw_noise("sign", (7 << 32) + 1, 3, 2, torch.arange(300), 300)
    assert np.array_equal(ours.numpy(), mixing_signs((7 << 32) + 1, 3, 2, 300))


def test_signs_before_they_are_centered_are_plus_or_minus_the_deviation() -> None:
    described = spec(Recipe(std=0.3, noise="sign", identity=False), seq_len=1000)
    w = draw_noise("sign", 0, 0, 0, torch.arange(1000), 1000)
    assert set(w.unique().tolist()) == {-1.0, 1.0}
    a = mixing_matrix(described, 0, [0])[0]
    for i in (126, 127, 128, 999):  # a row has two values, 0.6 apart
        assert float(a[i, : i + 1].max() - a[i, : i + 1].min()) == pytest.approx(0.6, rel=1e-6)
        assert len(a[i, : i + 1].unique()) == 2


def test_signs_are_balanced_and_independent() -> None:
    """A million bits: their sum, and the products of neighbors in a row and in a column, and of
    bits of the same place in two words, are within five deviations of 0."""
    w = draw_noise("sign", 11, 1, 2, torch.arange(1024), 1024)
    for products in (w, w[:, 1:] * w[:, :-1], w[1:] * w[:-1], w[:, 32:] * w[:, :-32]):
        assert abs(float(products.mean())) < 5 / products.numel() ** 0.5
    assert w.mean(0).abs().max() < 5 / 32 and w.mean(1).abs().max() < 5 / 32


@pytest.mark.parametrize("noise", NOISES)
def test_seed_layer_and_head_all_count(noise: str) -> None:
    recipe = Recipe(noise=noise)
    base = mixing_matrix(spec(recipe), 0, [0, 1])
    others = [
        mixing_matrix(spec(recipe, seed=1), 0, [0])[0],
        mixing_matrix(spec(recipe, seed=1 << 32), 0, [0])[0],
        mixing_matrix(spec(recipe), 1, [0])[0],
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


def test_on_a_gpu_the_means_of_a_layer_are_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing rows by torch to take their means would take most of an hour at length 131072."""
    calls = []

    def means(
        key: torch.Tensor, heads: int, length: int, causal: bool, signs: bool
    ) -> torch.Tensor:
        calls.append((heads, length, causal))
        return torch.zeros(heads, length)

    monkeypatch.setattr(generated, "by_triton", lambda device: True)
    monkeypatch.setattr(triton_noise, "row_means", means)
    monkeypatch.delattr(generated, "row_means")
    long = spec(RECIPES["paper"], seq_len=131072)
    state = generated.generated_state(long, 0, range(2), torch.device("cpu"))
    assert calls == [(2, 131072, True)] and state["means"].shape == (2, 131072)

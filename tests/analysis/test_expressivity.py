"""What one layer can express, against NumPy's least squares and known properties of each layer."""

import numpy as np
import pytest
import torch

from mixit_titan.analysis.expressivity import (
    LENGTH,
    TARGETS,
    WIDTH,
    attention_features,
    expressivity,
    mixing_features,
    prefix,
    ridge,
    share_left,
    tokens,
)


def draw(count: int) -> torch.Tensor:
    return tokens(count, torch.Generator().manual_seed(7))


def test_the_fit_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    f, y = rng.standard_normal((6, 5, 4)), rng.standard_normal((6, 5, 2))
    exact, *_ = np.linalg.lstsq(f.reshape(30, 4), y.reshape(30, 2), rcond=None)
    found = ridge(torch.from_numpy(f), torch.from_numpy(y), penalty=0.0)
    np.testing.assert_allclose(found.numpy(), exact, atol=1e-12)
    # With a penalty p: as if sqrt(p * rows) times each feature had been seen with the answer 0.
    rows = np.vstack([f.reshape(30, 4), np.sqrt(0.1 * 30) * np.eye(4)])
    shrunk, *_ = np.linalg.lstsq(rows, np.vstack([y.reshape(30, 2), np.zeros((4, 2))]), rcond=None)
    found = ridge(torch.from_numpy(f), torch.from_numpy(y), penalty=0.1)
    np.testing.assert_allclose(found.numpy(), shrunk, atol=1e-12)


def test_the_share_that_is_left() -> None:
    y = draw(50)
    assert share_left(y, y) == 0
    assert share_left(y.mean((0, 1)).expand_as(y), y) == pytest.approx(1)


def test_a_head_takes_what_softmax_says() -> None:
    x = draw(1)
    q, k = torch.randn(2, 1, WIDTH + 1, WIDTH, dtype=torch.float64)
    found = attention_features(q, k)(x)[0, 3, :WIDTH].numpy()
    seen = np.hstack([x[0, :4].numpy(), np.ones((4, 1))])
    logits = seen[3] @ q[0].numpy() @ (seen @ k[0].numpy()).T / np.sqrt(WIDTH)
    weights = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(found, weights @ x[0, :4].numpy(), atol=1e-12)


@pytest.mark.parametrize("target", TARGETS)
def test_targets_are_causal_and_fixed(target: str) -> None:
    x = draw(3)
    later = x.clone()
    later[:, 5:] += 1
    before, after = TARGETS[target](x), TARGETS[target](later)
    assert torch.allclose(before[:, :5], after[:, :5]) and not torch.allclose(before, after)
    assert TARGETS[target](x).equal(before)


def test_mixing_is_linear_in_the_tokens_and_attention_is_not() -> None:
    """So MixiT cannot express mixing that depends on the input, whatever its readout."""
    x, y = draw(2), draw(4)[2:]
    q, k = torch.randn(2, 3, WIDTH + 1, WIDTH, dtype=torch.float64)
    bent = []
    for features in (mixing_features(3, seed=0), prefix, attention_features(q, k)):
        middle = (features(x) + features(y)) / 2
        bent.append((features((x + y) / 2) - middle).abs().max().item())
    assert max(bent[:2]) < 1e-12 < 1e-3 < bent[2]


def test_mixing_with_many_heads_is_every_causal_linear_map() -> None:
    """What the best one leaves of the training data, MixiT leaves too, and never less."""
    x = draw(120)
    y = TARGETS["maximum"](x)
    left = {}
    for name, features in (
        ("linear", prefix),
        ("few", mixing_features(4, seed=0)),
        ("many", mixing_features(80, seed=0)),
    ):
        f = features(x).flatten(0, 1).numpy()
        fit, *_ = np.linalg.lstsq(f, y.flatten(0, 1).numpy(), rcond=1e-10)
        left[name] = share_left(torch.from_numpy(f @ fit).view_as(y), y)
    assert left["few"] > 1.2 * left["linear"]
    assert left["many"] == pytest.approx(left["linear"], rel=1e-3)


def test_error_falls_with_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixit_titan.analysis.expressivity._STEPS", 30)
    found = expressivity(heads=(1, 8), seeds=1)
    mean = {(r["target"], r["layer"], r["heads"]): r["mean"] for r in found["rows"]}
    for target in TARGETS:
        assert mean[target, "frozen_qk", 8] < 0.8 * mean[target, "frozen_qk", 1]
        assert mean[target, "trained", 8] < 0.3 * mean[target, "linear", None]
        assert mean[target, "mixit", 8] > mean[target, "linear", None]
    assert (found["length"], found["width"]) == (LENGTH, WIDTH)

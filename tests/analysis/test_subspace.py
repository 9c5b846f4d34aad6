"""Shares of variance, against NumPy and against data whose directions are known."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from mixit_titan.analysis.hooks import hidden_states
from mixit_titan.analysis.sequences import Sequences
from mixit_titan.analysis.subspace import Moments, explained, subspace
from mixit_titan.model.llama import MixitLlama


def of(states: np.ndarray) -> dict[str, float]:
    moments = Moments(states.shape[1])
    for part in np.array_split(states, 3):
        moments.add(torch.from_numpy(part))
    return explained(moments.covariance())


def test_data_of_rank_10_lies_in_10_directions_but_not_in_10_neurons() -> None:
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.standard_normal((64, 64)))
    states = rng.standard_normal((500, 10)) @ basis[:10] + 5.0
    shares = of(states)
    assert shares["principal"] == pytest.approx(1, abs=1e-9)
    assert 10 / 64 < shares["neurons"] < 0.5
    # The same on 10 axes: there neurons are the directions.
    states = np.zeros((500, 64))
    states[:, 20:30] = rng.standard_normal((500, 10))
    shares = of(states)
    assert shares["neurons"] == pytest.approx(1) == shares["principal"]


def test_known_variances() -> None:
    """20 independent features, of which 10 have variance 9 and 10 have 1: 90 of 100."""
    signs = np.array([[1.0, -1.0]]).repeat(20, 0)
    states = np.concatenate([np.diag(signs[:, 0]), np.diag(signs[:, 1])]) * (
        [3.0] * 10 + [1.0] * 10
    )
    shares = of(states)
    assert shares["principal"] == pytest.approx(0.9) and shares["neurons"] == pytest.approx(0.9)


def test_every_layer_has_its_shares_over_real_tokens_alone(
    build: Callable[..., MixitLlama], tokens: torch.Tensor
) -> None:
    model = build("mixit")
    lengths = torch.tensor([12, 2, 7, 12, 5])
    asked = torch.ones_like(tokens, dtype=torch.bool)
    sequences = Sequences(tokens_NL=tokens, lengths_N=lengths, asked_NL=asked, source="tokens")
    found = subspace(model, sequences)
    assert [row["layer"] for row in found["rows"]] == [0, 1, 2]
    assert found["tokens"] == 38
    for row, states_BLD in zip(found["rows"], hidden_states(model, tokens), strict=True):
        real = np.concatenate([s[:n].double() for s, n in zip(states_BLD, lengths, strict=True)])
        centred = real - real.mean(0)
        squares = np.linalg.svd(centred, compute_uv=False) ** 2
        assert row["principal"] == pytest.approx(squares[:10].sum() / squares.sum())
        variances = np.sort(real.var(0))[::-1]
        assert row["neurons"] == pytest.approx(variances[:10].sum() / variances.sum())

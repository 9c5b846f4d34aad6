"""Table 7's figures, against NumPy's covariance of the same states."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from mixit_titan.analysis.covariance import start_rows, token_covariance
from mixit_titan.analysis.hooks import hidden_states
from mixit_titan.analysis.sequences import Sequences, plain_sequences
from mixit_titan.analysis.untrained import language_models
from mixit_titan.model.llama import MixitLlama


@pytest.mark.parametrize("variant", ["standard", "mixit"])
def test_it_is_the_mean_over_pairs_of_tokens(
    build: Callable[..., MixitLlama], tokens: torch.Tensor, variant: str
) -> None:
    model = build(variant)
    lengths = [12, 2, 7, 12, 5]
    sequences = Sequences(
        tokens_NL=tokens,
        lengths_N=torch.tensor(lengths),
        asked_NL=torch.ones_like(tokens, dtype=torch.bool),
        source="tokens",
    )
    found = token_covariance(model, sequences)
    states = hidden_states(model, tokens)[-1].double().numpy()
    covariances, cosines = [], []
    for h_LD, length in zip(states, lengths, strict=True):
        pairs = [(i, j) for i in range(length) for j in range(length) if i != j]
        covariances.append(np.mean([np.cov(h_LD[i], h_LD[j])[0, 1] for i, j in pairs]))
        norms = np.linalg.norm(h_LD, axis=1)
        cosines.append(np.mean([h_LD[i] @ h_LD[j] / norms[i] / norms[j] for i, j in pairs]))
    assert found["covariance"] == pytest.approx(np.mean(covariances), rel=1e-9)
    assert found["cosine"] == pytest.approx(np.mean(cosines), rel=1e-9)


def test_tokens_that_are_all_the_same_have_a_cosine_of_1(
    build: Callable[..., MixitLlama],
) -> None:
    same = plain_sequences(torch.full((2, 6), 3), "tokens")
    assert token_covariance(build("standard"), same)["cosine"] == pytest.approx(1, abs=1e-5)


def test_over_depth_softmax_attention_makes_tokens_alike_and_mixit_does_not() -> None:
    """The order of Table 7, at every depth."""
    tokens = torch.randint(0, 50, (4, 32), generator=torch.Generator().manual_seed(0))
    sequences, depths = plain_sequences(tokens, "tokens"), [2, 8]
    found = start_rows(language_models(tokens, width=64, heads=4, seed=1), sequences, depths)
    rows = {(row["variant"], row["layers"]): row for row in found}
    assert list(rows) == [("random", 2), ("random", 8), ("mixit", 2), ("mixit", 8)]
    assert not any(row["trained"] for row in found)
    for layers in depths:
        assert rows["random", layers]["covariance"] > 2 * rows["mixit", layers]["covariance"]
        assert rows["random", layers]["cosine"] > rows["mixit", layers]["cosine"]
    again, other = (
        start_rows(language_models(tokens, width=64, heads=4, seed=seed), sequences, [2])[0]
        for seed in (1, 2)
    )
    assert again == rows["random", 2] != other

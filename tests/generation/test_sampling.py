"""Draws have the probabilities of the softmax."""

import numpy as np
import pytest
import torch

from mixit_titan.generation.sampling import Sampling, unlikely

LOGITS = torch.tensor([[1.0, -2.0, 0.5, 3.0, -0.5, 0.0], [0.0, 0.0, 4.0, 0.0, -1.0, 2.0]])


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_as_often_as_they_should(temperature: float) -> None:
    sampling, count = Sampling(temperature=temperature, top_p=1, seed=7), 4000
    rows = LOGITS.repeat(count // 8, 1)  # each with draws of its own
    drawn = torch.cat([sampling.choose(rows, position) for position in range(8)]).view(-1, 2)
    shares = np.stack([np.bincount(row, minlength=6) for row in drawn.T.numpy()]) / count
    expected = softmax(LOGITS.numpy() / temperature)
    # Five standard deviations of a share; the draws are the same on every machine.
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / count)).all()


def nucleus(p: np.ndarray, top_p: float) -> set[int]:
    kept, mass = set(), 0.0
    for token in sorted(range(len(p)), key=lambda token: -p[token]):
        if mass >= top_p:
            break
        kept.add(token)
        mass += p[token]
    return kept


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.8, 0.9, 0.999])
def test_top_p_leaves_the_most_likely_tokens(top_p: float) -> None:
    logits = torch.randn(5, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for row, dropped in zip(softmax(logits.numpy()), unlikely(logits, top_p), strict=True):
        assert set((~dropped).nonzero().flatten().tolist()) == nucleus(row, top_p)
    sampling = Sampling(temperature=1, top_p=top_p, seed=0)
    drawn = sampling.choose(LOGITS.repeat(300, 1), 0).view(300, 2)
    for row, p in enumerate(softmax(LOGITS.double().numpy())):
        assert set(drawn[:, row].tolist()) <= nucleus(p, top_p)


def test_equal_rows_get_draws_of_their_own() -> None:
    sampling, logits = Sampling(temperature=1, top_p=1, seed=0), torch.zeros(2, 50)
    drawn = torch.stack([sampling.choose(logits, position) for position in range(40)])
    assert (drawn[:, 0] == drawn[:, 1]).sum() < 10
    assert len(set(drawn[:, 0].tolist())) > 15

"""Every mixer, and hybrids of them, generates the same tokens with and without a cache."""

import dataclasses

import pytest
import torch

from mixit_titan.generation.generate import generate
from mixit_titan.generation.sampling import Sampling
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.mixers.registry import MIXERS
from tests.model.conftest import TINY, build

HYBRIDS = ["mixit*3 standard", "learned window embedding frozen_qk", "uniform linear@first"]
# Fewer key heads than heads, and a window that is shorter than what is generated.
SHAPE = dataclasses.replace(TINY, layers=4, kv_heads=2, window=5)
PROMPTS = [[7, 3, 44, 9, 9], [1], [30, 2, 17]]
COUNT, VOCABULARY = 16, 48
SAMPLINGS = [Sampling(temperature=0, top_p=1, seed=0), Sampling(temperature=1, top_p=0.9, seed=3)]


def rows(model: MixitLlama, sampling: Sampling, *, cache: bool) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in PROMPTS]
    for row, token in generate(
        model,
        PROMPTS,
        count=COUNT,
        sampling=sampling,
        vocabulary=VOCABULARY,
        end_of_text=None,
        cache=cache,
    ):
        found[row] += [] if token is None else [token]
    return found


@torch.no_grad()
def most_likely(model: MixitLlama, prompt: list[int]) -> list[int]:
    """One prompt alone, the complete sequence for each token."""
    sequence = list(prompt)
    for _ in range(COUNT):
        sequence.append(int(model(torch.tensor([sequence]))[0, -1, :VOCABULARY].argmax()))
    return sequence[len(prompt) :]


@pytest.mark.parametrize("stack", [*MIXERS, *HYBRIDS])
def test_the_cache_changes_no_token(stack: str) -> None:
    model = build(stack, shape=SHAPE)
    greedy, drawn = ([rows(model, s, cache=c) for c in (True, False)] for s in SAMPLINGS)
    assert greedy[0] == greedy[1] == [most_likely(model, prompt) for prompt in PROMPTS]
    assert drawn[0] == drawn[1] != greedy[0]
    assert all(len(row) == COUNT and len({*row}) > 3 for row in drawn[0])

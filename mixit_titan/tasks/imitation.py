"""Circuit imitation: match the output distribution of a random transformer.

    question  5 17 3 60
    answer    9 9 41 12      (what the target would say next, at each position)

The target is a `standard` model of `--target-width` at initialization; the wider it is, the more
there is to imitate. The loss is the KL divergence from the target's distribution to the model's, at
every position; accuracy is how often both have the same most likely token. Sequences are uniform.
"""

import functools
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch

from mixit_titan.errors import ConfigError
from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.ranges import SEED, Range
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.task import Task

# Weights large enough that the target's distribution depends on its input, not only on its head.
_TARGET_GAIN = 2.0


@dataclass(frozen=True, kw_only=True)
class Imitation(Task):
    """Match the output distribution of a transformer at initialization."""

    target_width: Annotated[int, Range(least=8, most=2**14)] = 32
    """Width of the transformer to imitate: a multiple of 8, since its 4 heads need an even
    width."""
    target_layers: Annotated[int, Range(least=1, most=1000)] = 3
    """Number of layers of the transformer to imitate."""
    target_seed: Annotated[int, SEED] = 0
    """Seed of the target's weights, which are the same for every seed of the imitating model."""
    vocab: Annotated[int, Range(least=2, most=2**24)] = 256
    """Size of the vocabulary."""
    length: Annotated[int, Range(least=1, most=10_000)] = 40
    """Positions in a sequence."""

    def check(self) -> None:
        if self.target_width % 8:
            raise ConfigError(f"--target-width is {self.target_width}: it must be a multiple of 8")

    @property
    def token_count(self) -> int:
        return self.vocab

    @property
    def positions(self) -> int:
        return self.length

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        tokens = rng.integers(0, self.vocab, (count, self.length), dtype=np.int32)
        with torch.no_grad():
            logits = self._target(torch.from_numpy(tokens).long())
            targets = torch.log_softmax(logits.float(), -1).numpy()
        return Examples(tokens, targets.argmax(-1).astype(np.int32), targets=targets)

    @functools.cached_property
    def _target(self) -> MixitLlama:
        shape = Shape(
            width=self.target_width,
            layers=self.target_layers,
            heads=4,
            hidden=4 * self.target_width,
            vocab=self.vocab,
            seq_len=self.length,
            init_std=_TARGET_GAIN / self.target_width**0.5,
            embedding_std=1.0,
        )
        seed = self.target_seed
        config = llama_config(shape, VARIANTS["standard"], init_seed=seed, attention="sdpa")
        target = config.build()
        target.init_states()
        return target

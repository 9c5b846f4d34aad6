"""Models at their random start."""

from collections.abc import Callable

import torch
from torch import nn
from torchtitan.tools import utils

from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe, find_recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.models import PooledClassifier

Start = Callable[[str, int], MixitLlama]
"""From a variant and a number of layers to a model before its first step."""


def body(model: nn.Module) -> MixitLlama:
    """What is looked at: the model without its head, on the GPU if there is one."""
    llama = model.body if isinstance(model, PooledClassifier) else model
    assert isinstance(llama, MixitLlama)
    llama.lm_head = None
    return llama.to(utils.device_type).requires_grad_(False).eval()


def started(config: MixitLlama.Config) -> MixitLlama:
    model = config.build()
    model.init_states()
    return body(model)


def language_models(
    tokens_NL: torch.Tensor, *, width: int, heads: int, seed: int, recipe: str
) -> Start:
    """Language models that can read `tokens`, with the scales of the paper's; `recipe` is that of
    `mixit`."""

    def start(variant: str, layers: int) -> MixitLlama:
        shape = Shape(
            width=width,
            layers=layers,
            heads=heads,
            hidden=4 * width,
            vocab=int(tokens_NL.max()) + 1,
            seq_len=tokens_NL.shape[1],
        )
        mixing = VARIANTS[variant].mixer == "mixing"
        config = llama_config(
            shape,
            VARIANTS[variant],
            find_recipe(recipe) if mixing else Recipe(),
            mixing_seed=seed,
            attention="sdpa",
        )
        config.init_seed = seed
        return started(config)

    return start

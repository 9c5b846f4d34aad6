"""Models at initialization."""

import math
from collections.abc import Callable

import torch
from torch import nn

from mixit_titan.device import device_type
from mixit_titan.model.build import llama_config
from mixit_titan.model.initial_std import AUTHORS_STD
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe, find_recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.bottleneck import BottleneckDecoder
from mixit_titan.tasks.models import PooledClassifier

Start = Callable[[str, int], MixitLlama]
"""A function from a variant and a number of layers to a model at initialization."""


def body(model: nn.Module) -> MixitLlama:
    """The part that is analyzed: the model without its output head, on the GPU if there is one."""
    llama = model.body if isinstance(model, PooledClassifier | BottleneckDecoder) else model
    assert isinstance(llama, MixitLlama)
    llama.lm_head = None
    return llama.to(device_type()).requires_grad_(False).eval()


def started(config: MixitLlama.Config) -> MixitLlama:
    """A model at initialization, without its output head."""
    model = config.build()
    model.init_states()
    return body(model)


def language_models(
    tokens_NL: torch.Tensor, *, width: int, heads: int, seed: int = 0, recipe: str = "official"
) -> Start:
    """Language models that can read `tokens`; `recipe` is that of `mixit`. At any width, a linear
    map is as strong as in the paper's models, which have weights of N(0, 0.02^2) at width 512."""

    def start(variant: str, layers: int) -> MixitLlama:
        own = find_recipe(recipe) if VARIANTS[variant].mixes else Recipe()
        shape = Shape(
            width=width,
            layers=layers,
            heads=heads,
            hidden=4 * width,
            vocab=int(tokens_NL.max()) + 1,
            seq_len=tokens_NL.shape[1],
            init_std=AUTHORS_STD if own.linear_scale else AUTHORS_STD * math.sqrt(512 / width),
            embedding_std=AUTHORS_STD,
        )
        seeds = {"init_seed": seed, "mixing_seed": seed}
        return started(llama_config(shape, VARIANTS[variant], own, **seeds, attention="sdpa"))

    return start

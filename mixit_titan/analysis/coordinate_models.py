"""Small language models of any width and depth, trained for a few steps on bytes of text, for the
coordinate check and the learning rate sweep.

`mup` is the maximal update parametrization (Yang and Hu, 2021) for AdamW: weights with `width`
inputs, which are the linear maps of the layers and the output head, train at rate * base / width,
and the head is initialized smaller by a factor of sqrt(base / width). Embeddings and norms keep the
rate. Attention heads are equally wide at every size, so that attention needs no other scale.

Shapes: B rows, L positions, T = L + 1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from mixit_titan.data.sources import STDLIB, find_corpus
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze, part_of
from mixit_titan.model.initial_std import LINEARS
from mixit_titan.model.recipes import find_recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS

BASE = 64
"""The width at which both parametrizations are the same model with the same learning rates."""
HEAD_WIDTH, LENGTH, ROWS, VOCAB = 16, 64, 8, 256


@dataclass(frozen=True)
class Family:
    """The models of one variant, recipe and parametrization, at any size."""

    variant: str
    recipe: str = "paper"
    mup: bool = False

    @property
    def name(self) -> str:
        """The family as tables show it: `mixit official`, `standard mup`."""
        mixes = VARIANTS[self.variant].mixes
        words = [self.variant, self.recipe if mixes else "", "mup" if self.mup else ""]
        return " ".join(filter(None, words))


FAMILIES = (
    *(Family(variant) for variant in VARIANTS),
    Family("mixit", "official"),
    Family("standard", mup=True),
    Family("mixit", mup=True),
)


def build(family: Family, width: int, depth: int, seed: int = 0) -> nn.Module:
    """Build a model at initialization, with its frozen parts excluded from training."""
    stack = VARIANTS[family.variant]
    shape = Shape(
        width=width,
        layers=depth,
        heads=width // HEAD_WIDTH,
        hidden=4 * width,
        vocab=VOCAB,
        seq_len=LENGTH,
        init_std={"head": f"{math.sqrt(BASE / width):.6f} fan_in"} if family.mup else "fan_in",
    )
    recipe = find_recipe(family.recipe)
    seeds = {"init_seed": seed, "mixing_seed": seed}
    model = llama_config(shape, stack, recipe, **seeds, attention="sdpa", on_gpu=False).build()
    model.init_states()
    freeze(model, stack)
    return model


def optimizer(model: nn.Module, family: Family, width: int, rate: float) -> torch.optim.AdamW:
    """AdamW without weight decay, whose strength would also depend on the learning rate."""
    scaled, plain = [], []
    for name, param in model.named_parameters():
        if param.requires_grad:
            (scaled if part_of(name) in LINEARS else plain).append(param)
    groups = [{"params": plain, "lr": rate}]
    groups.append({"params": scaled, "lr": rate * BASE / width if family.mup else rate})
    used = [group for group in groups if group["params"]]
    return torch.optim.AdamW(used, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)


def loss_of(model: nn.Module, tokens_BT: torch.Tensor) -> torch.Tensor:
    """The mean next-token loss of a batch, in nats per token."""
    logits_BLV = model(tokens_BT[:, :-1])
    return functional.cross_entropy(logits_BLV.flatten(0, 1).float(), tokens_BT[:, 1:].flatten())


def batches(steps: int) -> Iterator[torch.Tensor]:
    """Batches (B, T) of the standard library's sources, the same for every model. No byte occurs
    twice, so that a training loss is a loss on unseen text."""
    needed, text = steps * ROWS * (LENGTH + 1), bytearray()
    for document in find_corpus(STDLIB).documents():
        text += document.text
        if len(text) >= needed:
            break
    tokens = torch.from_numpy(np.frombuffer(bytes(text[:needed]), dtype=np.uint8).astype(np.int64))
    # The rows of a step come from places that are far apart in the text.
    yield from tokens.view(ROWS, steps, LENGTH + 1).transpose(0, 1)

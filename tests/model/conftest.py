import pytest
import torch

from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import read_stack
from mixit_titan.model.variants import VARIANTS

TINY = Shape(width=32, layers=2, heads=4, hidden=64, vocab=50, seq_len=24, embedding_std=1.0)

# Every variant, mixit with each recipe, and stacks of two kinds of layers.
MODELS = [*((name, "paper") for name in VARIANTS), ("mixit", "official")]
MODELS += [("mixit frozen_qk", "paper"), ("mixit@last", "official")]


def build(variant: str, recipe: str = "paper", shape: Shape = TINY, **settings: int) -> MixitLlama:
    """`variant` is the name of one, or a stack as it is written."""
    stack = read_stack(variant, shape.layers)
    chosen = RECIPES[recipe] if stack.mixes else None
    model = llama_config(shape, stack, chosen, **settings).build()
    model.init_states()
    return model


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(1))

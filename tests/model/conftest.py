import pytest
import torch

from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS

TINY = Shape(width=32, layers=2, heads=4, hidden=64, vocab=50, seq_len=24, embedding_std=1.0)

# Every variant, and mixit with each recipe.
MODELS = [*((name, "paper") for name in VARIANTS), ("mixit", "official")]


def build(variant: str, recipe: str = "paper", shape: Shape = TINY, **settings: int) -> MixitLlama:
    chosen = RECIPES[recipe] if VARIANTS[variant].mixer == "mixing" else None
    model = llama_config(shape, VARIANTS[variant], chosen, **settings).build()
    model.init_states()
    return model


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(1))

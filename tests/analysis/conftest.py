"""Small finished task runs, one folder each, and untrained models."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import RECIPES, Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.loop import train
from mixit_titan.tasks.progress import Reporter
from tests.tasks.conftest import make_run

VOCAB, LENGTH = 24, 12
VARIANTS_OF_RETRIEVAL = ("standard", "frozen_qk", "mixit", "random", "linear", "lstm")


@pytest.fixture(scope="session")
def task_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("task_runs")
    reviews = root / "reviews.csv"
    rows = [f"good,a fine meal no {n}\nbad,an awful one no {n}" for n in range(40)]
    reviews.write_text("label,text\n" + "\n".join(rows) + "\n")
    retrieval = "--steps 3 --layers 2 --pairs 4 --vocab 16 --test 30"
    runs = {v: make_run("retrieval", f"{retrieval} --variant {v}") for v in VARIANTS_OF_RETRIEVAL}
    runs["hybrid"] = make_run("retrieval", f"{retrieval} --stack mixit@0")
    yelp = f"--csv {reviews} --length 8 --vocab 30 --test 5 --steps 3"
    runs["yelp"] = make_run("yelp", f"{yelp} --variant mixit --no-causal --recipe paper")
    runs["hop"] = make_run("hop", "--hops 2 --length 9 --steps 3 --test 5")
    runs["modular"] = make_run("modular", "--modulus 7 --train 30 --steps 3 --test 5")
    for name, run in runs.items():
        reporter = Reporter("", 1, console=Console(quiet=True), wandb_settings=None)
        train(run, root / name, device=torch.device("cpu"), reporter=reporter)
    return root


@pytest.fixture
def build() -> Callable[..., MixitLlama]:
    """A model at initialization, by variant, depth and recipe."""

    def build(variant: str, layers: int = 2, recipe: str = "paper", **shape: int) -> MixitLlama:
        sizes = {"width": 32, "heads": 4, "hidden": 48, "vocab": VOCAB, "seq_len": LENGTH} | shape
        mixing = VARIANTS[variant].mixes
        config = llama_config(
            Shape(layers=layers, init_std=0.2, embedding_std=1.0, **sizes),
            VARIANTS[variant],
            RECIPES[recipe] if mixing else Recipe(),
            attention="sdpa",
        )
        model = config.build()
        model.init_states()
        return model.requires_grad_(False)

    return build


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(0, VOCAB, (5, LENGTH), generator=torch.Generator().manual_seed(1))

"""Muon: torch's own, for the matrices of the layers, sharded or not."""

import math
import re
import shutil

import numpy as np
import pytest
import torch

from mixit_titan.config.run import load_run, run_train
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import find_variant
from mixit_titan.runtime.optimizer import optimizer_config

from .conftest import SMALL, STEPS, Runs
from .test_training import assert_same

# In the rule's larger weights the rounding of bfloat16, in which Muon multiplies, shows more.
MUON = ["--optimizer.name", "Muon", "--model.init_std", "0.02", "--model.embedding_std", "0.02"]
STANDARD = str(shipped_configs()["debug_standard"])
SHAPE = Shape(layers=2, width=16, hidden=40, heads=2, vocab=50, seq_len=8, bias=True)
LR, DECAY = 0.01, 0.1


def orthogonalized(grad: np.ndarray) -> np.ndarray:
    """Five steps of Newton and Schulz's quintic iteration, from Keller Jordan's post."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = grad / np.linalg.norm(grad)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def is_matrix(name: str) -> bool:
    return bool(re.search(r"(wq|wk|wv|wo|w1|w2|w3)\.weight$", name))


@pytest.mark.parametrize("variant", ["frozen_qk", "mixit"])
def test_a_step_is_muons_for_matrices_and_adamws_for_the_rest(variant: str) -> None:
    model = llama_config(SHAPE, find_variant(variant)).build()
    model.init_states()
    freeze(model, find_variant(variant))
    settings = {"lr": LR, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": DECAY}
    optimizers = optimizer_config("Muon", **settings, implementation="fused").build(
        model_parts=[model]
    )
    generator = torch.Generator().manual_seed(1)
    before, grads = {}, {}
    for name, param in model.named_parameters():
        before[name] = param.detach().double().numpy().copy()
        if param.requires_grad:
            param.grad = torch.randn(param.shape, generator=generator)
            grads[name] = param.grad.double().numpy()
    optimizers.step()
    matrices = 0
    for name, param in model.named_parameters():
        after = param.detach().double().numpy()
        if name not in grads:
            assert "wq" in name or "wk" in name
            np.testing.assert_array_equal(after, before[name])
            continue
        decayed = (1 - LR * DECAY) * before[name]
        if is_matrix(name):
            matrices += 1
            factor = LR * 0.2 * math.sqrt(max(after.shape))
            expected, tolerance = decayed - factor * orthogonalized(grads[name]), 0.1 * factor
        else:  # the first step of Adam is the sign of the gradient
            expected, tolerance = decayed - LR * np.sign(grads[name]), 1e-5
        assert np.abs(after - expected).max() < tolerance, name
    assert matrices == 2 * 5  # v, o and the three of the MLP


TENSOR = ["--parallelism.tensor_parallel_degree", "2"]


def test_losses_are_those_of_one_rank(runs: Runs) -> None:
    runs.train(1, {"muon": ("standard", MUON), "muon_mixit": ("mixit", MUON)})
    runs.train(2, {"muon_2": ("standard", MUON), "muon_mixit_tensor": ("mixit", [*MUON, *TENSOR])})
    assert_same(runs.losses("muon_2"), runs.losses("muon"), 1e-4)
    assert_same(runs.losses("muon_mixit_tensor"), runs.losses("muon_mixit"), 1e-4)


@pytest.mark.slow
def test_losses_are_those_of_one_rank_however_the_matrices_are_split(runs: Runs) -> None:
    two = {
        "muon_qk_2": ("frozen_qk", MUON),
        "muon_qk_tensor": ("frozen_qk", [*MUON, *TENSOR]),
        "muon_qk_pipeline": ("frozen_qk", [*MUON, "--parallelism.pipeline_parallel_degree", "2"]),
    }
    four = {
        "muon_qk_hybrid": (
            "frozen_qk",
            [*MUON, "--parallelism.data_parallel_replicate_degree", "2"],
        ),
        "muon_qk_tensor_4": ("frozen_qk", [*MUON, *TENSOR]),
    }
    runs.train(1, {"muon_qk": ("frozen_qk", MUON)})
    runs.train(2, two)
    runs.train(4, four)
    for name in two | four:
        # Newton and Schulz's products are in bfloat16, and tensor parallelism splits their sums.
        tolerance = 3e-4 if "tensor" in name else 1e-4
        assert_same(runs.losses(name), runs.losses("muon_qk"), tolerance)


def test_a_resumed_run_gives_the_same_bits(runs: Runs) -> None:
    until_10 = [*MUON, "--training.steps", "10", "--lr_scheduler.total_steps", str(STEPS)]
    runs.train(2, {"muon_whole": ("frozen_mlp", MUON), "muon_cut": ("frozen_mlp", until_10)})
    runs.train(2, {"muon_cut": ("frozen_mlp", MUON)})
    assert runs.losses("muon_cut") == runs.losses("muon_whole")


def test_the_state_of_another_optimizer_is_refused(runs: Runs) -> None:
    shutil.copytree(runs.folder("standard"), runs.folder("adamw"))
    words = [*SMALL, "--data.path", str(runs.data), "--dump_folder", str(runs.folder("adamw"))]
    more = [*words, *MUON, "--training.steps", "21"]
    said = r"optimizer is 'Adam or AdamW' there and 'Muon' here.*; (--\S+ optimizer) starts with"
    with pytest.raises(ConfigError, match=said) as error:
        run_train(STANDARD, more)
    anew = re.search(said, str(error.value))[1].split()
    runs.train(1, {"adamw": ("standard", [*MUON, "--training.steps", "22", *anew])})
    assert len(runs.losses("adamw")) == 22


@pytest.mark.parametrize(
    ("words", "said"),
    {
        "--model.variant random": "'Muon' has nothing to train, because random freezes all",
        "--model.freeze norm,embedding,head": "leave embedding or head or norm out of model.freeze",
        "--model.freeze norm --parallelism.pipeline_parallel_degree 2": "leave norm out of",
    }.items(),
)
def test_nothing_to_train_is_one_sentence(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_run(STANDARD, [*MUON, *words.split()], world_size=2)

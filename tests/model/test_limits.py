"""What cannot be split is refused in one sentence, before anything is started."""

import dataclasses
from typing import Any

import pytest
from torchtitan.config.configs import ParallelismConfig, TrainingConfig

from mixit_titan.errors import ConfigError
from mixit_titan.kernels.forms import Form
from mixit_titan.model.build import llama_config
from mixit_titan.model.limits import check_limits
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.stack import Stack, read_stack, uniform
from mixit_titan.model.variants import VARIANTS

from .conftest import TINY


def check(
    variant: Stack = VARIANTS["mixit"],
    *,
    recipe: Recipe | None = None,
    form: Form | None = None,
    shape: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    **parallelism: Any,
) -> None:
    config = llama_config(dataclasses.replace(TINY, **shape or {}), variant, recipe, form=form)
    settings = {"seq_len": 24, "local_batch_size": 8, "disable_cuda_graphs": True}
    split = {"spmd_backend": "partial_dtensor"}
    for key, value in parallelism.items():
        split[f"{key}_parallel_degree" if key in ("tensor", "pipeline", "context") else key] = value
    check_limits(config, TrainingConfig(**settings | (training or {})), ParallelismConfig(**split))


def test_what_can_be_split_is_let_through() -> None:
    check(tensor=2)
    check(tensor=4, pipeline=2)
    check(pipeline=2, pipeline_parallel_schedule="GPipe")
    check(form="sharded")
    check(uniform("mixing", ("v", "o", "mlp")), pipeline=2)
    check(read_stack("random standard", 2), pipeline=2)
    check(read_stack("mixit standard", 2), tensor=2, pipeline=2)


WRONG = {
    "context": ({"context": 2}, "context_parallel_degree is not supported with the mixing mixer"),
    "backend": ({"spmd_backend": "spmd_types"}, "is not supported yet with the mixing mixer"),
    "heads": ({"tensor": 8}, "tensor_parallel_degree = 8 does not divide model.heads = 4"),
    "sequence": (
        {"tensor": 2, "training": {"seq_len": 23}},
        "training.seq_len = 23 is not a multiple of parallelism.tensor_parallel_degree = 2",
    ),
    "sharded": ({"tensor": 2, "form": "sharded"}, "supports data parallelism only"),
    "stages": ({"pipeline": 8}, "cannot split the model into stages"),
    "empty stage": ({"pipeline": 4}, "stage 0 of .* would have none of model.layers = 2"),
    "schedule": (
        {"pipeline": 2, "pipeline_parallel_schedule": "1F1C"},
        "unknown parallelism.pipeline_parallel_schedule '1F1C': did you mean '1F1B'",
    ),
    "graphs": (
        {"pipeline": 2, "training": {"disable_cuda_graphs": False}},
        "is not supported with CUDA graphs",
    ),
    "microbatch": (
        {"pipeline": 2, "pipeline_parallel_microbatch_size": 3},
        "microbatch_size = 3 does not divide training.local_batch_size = 8",
    ),
    "tied": ({"pipeline": 2, "shape": {"tied": True}}, "cannot split a tied model"),
    "frozen stage": (
        {
            "pipeline": 2,
            "variant": uniform("mixing", ("v", "o", "mlp", "norm", "embedding")),
        },
        "stage 0 would have nothing to train",
    ),
    "frozen layer of a stage": (
        {
            "pipeline": 2,
            "variant": read_stack("random standard", 2, ["embedding"]),
        },
        "stage 0 would have nothing to train",
    ),
    "context of some layers": (
        {"context": 2, "variant": read_stack("standard mixit", 2)},
        "context_parallel_degree is not supported with the mixing mixer",
    ),
    "sharded matrices of some layers": (
        {"tensor": 2, "form": "sharded", "variant": read_stack("standard mixit", 2)},
        "supports data parallelism only",
    ),
    "not causal": ({"recipe": Recipe(causal=False)}, "it is for classification"),
}


@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_is_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        check(**settings)
    assert "\n" not in str(error.value)

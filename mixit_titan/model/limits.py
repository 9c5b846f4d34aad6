"""What a model does not support, each refused in one sentence."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from torch.distributed.pipelining.schedules import get_schedule_class
from torchtitan.config.configs import ParallelismConfig, TrainingConfig
from torchtitan.distributed.pipeline_parallel import (
    _generate_llm_fqn_per_model_part,
    _get_pipeline_metadata,
)
from torchtitan.models.common.attention import ScaledDotProductAttention

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack

if TYPE_CHECKING:
    from mixit_titan.model.llama import MixitLlama

_SCHEDULES = ("1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")


def check_limits(
    config: "MixitLlama.Config",
    training: TrainingConfig,
    parallelism: ParallelismConfig,
    phases: Sequence[Stack] = (),
) -> None:
    """Refuse a run that the model does not support; called whenever a run's config is made.
    `phases` says what is trained when, if that changes during the run."""
    if training.seq_len > config.max_seq_len:
        raise too_long(training.seq_len, config.max_seq_len)
    if config.stack.mixes:
        _check_mixing(config, parallelism)
    elif parallelism.context_parallel_degree > 1:
        _check_attention_for_context(config)
    _check_tensor(config.shape, training, parallelism)
    if parallelism.pipeline_parallel_degree > 1:
        _check_pipeline(config, training, parallelism, [config.stack, *phases])


def too_long(seq_len: int, longest: int) -> ConfigError:
    """Return the error for a sequence that is longer than the model's."""
    return ConfigError(
        f"a sequence of {seq_len} tokens is longer than the model's {longest}: "
        "lower training.seq_len, or raise model.seq_len (which makes another model)"
    )


def _check_mixing(config: "MixitLlama.Config", parallelism: ParallelismConfig) -> None:
    if not config.recipe.causal:
        raise ConfigError(
            "model.mixing.causal = false lets a token see the tokens it is to predict: "
            "it is for classification, not for pretraining"
        )
    if parallelism.context_parallel_degree > 1:
        raise ConfigError(
            "parallelism.context_parallel_degree is not supported with the mixing mixer "
            "or another mixer by position: set it to 1, and use data, tensor or pipeline "
            "parallelism"
        )
    if parallelism.spmd_backend != "partial_dtensor":
        raise ConfigError(
            f"parallelism.spmd_backend = {parallelism.spmd_backend!r} is not supported yet with "
            "the mixing mixer: use 'partial_dtensor'"
        )
    mixing = config.first_mixing
    if mixing is not None and mixing.form == "sharded" and parallelism.tensor_parallel_degree > 1:
        raise ConfigError(
            'model.mixing.storage = "sharded" supports data parallelism only: with tensor '
            'parallelism each rank has only some of the heads, use "stored" or "generated"'
        )


def _check_attention_for_context(config: "MixitLlama.Config") -> None:
    inners = [layer.attention.inner_attention for layer in config.layers]
    if any(isinstance(inner, ScaledDotProductAttention.Config) for inner in inners):
        raise ConfigError(
            'context parallelism needs model.attention = "flex", and so a GPU: '
            "set parallelism.context_parallel_degree = 1"
        )


def _check_tensor(shape: Shape, training: TrainingConfig, parallelism: ParallelismConfig) -> None:
    tensor = parallelism.tensor_parallel_degree
    if shape.heads % tensor or (shape.kv_heads or shape.heads) % tensor:
        raise ConfigError(
            f"parallelism.tensor_parallel_degree = {tensor} does not divide model.heads = "
            f"{shape.heads} and model.kv_heads = {shape.kv_heads or shape.heads}"
        )
    if tensor > 1 and parallelism.enable_sequence_parallel and training.seq_len % tensor:
        raise ConfigError(
            f"training.seq_len = {training.seq_len} is not a multiple of "
            f"parallelism.tensor_parallel_degree = {tensor}: change one of them, or set "
            "parallelism.enable_sequence_parallel = false"
        )


def _check_pipeline(
    config: "MixitLlama.Config",
    training: TrainingConfig,
    parallelism: ParallelismConfig,
    stacks: Sequence[Stack],
) -> None:
    if config.shape.tied:
        raise ConfigError("pipeline parallelism cannot split a tied model: set model.tied = false")
    if not training.disable_cuda_graphs:
        raise ConfigError(
            "pipeline parallelism is not supported with CUDA graphs: leave out "
            "training.disable_cuda_graphs, or set it to true"
        )
    micro = parallelism.pipeline_parallel_microbatch_size
    if training.local_batch_size % micro:
        raise ConfigError(
            f"parallelism.pipeline_parallel_microbatch_size = {micro} does not divide "
            f"training.local_batch_size = {training.local_batch_size}"
        )
    for stage, modules in enumerate(_stages(config, parallelism)):
        layers = [int(name.partition(".")[2]) for name in modules if name.startswith("layers.")]
        if not layers:
            raise ConfigError(
                f"pipeline stage {stage} of parallelism.pipeline_parallel_degree = "
                f"{parallelism.pipeline_parallel_degree} would have none of model.layers = "
                f"{config.shape.layers}: use fewer stages"
            )
        if not all(_trains(stack, modules, layers) for stack in stacks):
            key = "model.freeze" if len(stacks) == 1 else "model.freeze or optimizer.groups"
            raise ConfigError(
                f"pipeline stage {stage} would have nothing to train, because {key} freezes "
                "all of its parts: use fewer stages, or data parallelism"
            )


def _stages(config: "MixitLlama.Config", parallelism: ParallelismConfig) -> list[list[str]]:
    """Return the modules of each stage, as torchtitan splits the model."""
    if parallelism.module_fqns_per_model_part is not None:
        return parallelism.module_fqns_per_model_part
    schedule = parallelism.pipeline_parallel_schedule
    try:
        get_schedule_class(schedule)
    except ValueError:
        raise unknown("parallelism.pipeline_parallel_schedule", schedule, _SCHEDULES) from None
    dims = SimpleNamespace(pp=parallelism.pipeline_parallel_degree)
    try:
        return _generate_llm_fqn_per_model_part(*_get_pipeline_metadata(dims, parallelism, config))
    except ValueError as error:
        raise ConfigError(f"[parallelism] cannot split the model into stages: {error}") from error


def _trains(stack: Stack, modules: list[str], layers: list[int]) -> bool:
    """Return whether a stage has anything to train."""
    outer = {"tok_embeddings": "embedding", "norm": "norm", "lm_head": "head"}
    if any(module in modules and not stack.freezes(part) for module, part in outer.items()):
        return True
    return any(stack.pair(layer).frozen != stack.pair(layer).parts for layer in layers)

"""What a model cannot do, each in one sentence."""

from typing import TYPE_CHECKING

from torchtitan.config.configs import ParallelismConfig, TrainingConfig
from torchtitan.models.common.attention import ScaledDotProductAttention

from mixit_titan.errors import ConfigError

if TYPE_CHECKING:
    from mixit_titan.model.llama import MixitLlama


def check_limits(
    config: "MixitLlama.Config", training: TrainingConfig, parallelism: ParallelismConfig
) -> None:
    if training.seq_len > config.max_seq_len:
        raise too_long(training.seq_len, config.max_seq_len)
    if config.variant.mixer == "mixing":
        _check_mixing(parallelism)
    else:
        _check_attention(config, parallelism)


def too_long(seq_len: int, longest: int) -> ConfigError:
    return ConfigError(
        f"a sequence of {seq_len} tokens is longer than the model's {longest}: "
        "lower training.seq_len, or raise model.seq_len (which makes another model)"
    )


def _check_mixing(parallelism: ParallelismConfig) -> None:
    for key in ("tensor", "pipeline", "context"):
        if getattr(parallelism, f"{key}_parallel_degree") > 1:
            raise ConfigError(
                f"parallelism.{key}_parallel_degree is not there yet for the mixing mixer: "
                "use data parallelism (data_parallel_shard_degree, data_parallel_replicate_degree)"
            )
    if parallelism.spmd_backend != "partial_dtensor":
        raise ConfigError(
            f"parallelism.spmd_backend = {parallelism.spmd_backend!r} is not there yet for the "
            "mixing mixer: use 'partial_dtensor'"
        )


def _check_attention(config: "MixitLlama.Config", parallelism: ParallelismConfig) -> None:
    shape, tensor = config.shape, parallelism.tensor_parallel_degree
    if shape.heads % tensor or (shape.kv_heads or shape.heads) % tensor:
        raise ConfigError(
            f"parallelism.tensor_parallel_degree = {tensor} does not divide model.heads = "
            f"{shape.heads} and model.kv_heads = {shape.kv_heads or shape.heads}"
        )
    if parallelism.pipeline_parallel_degree > 1 and shape.tied:
        raise ConfigError("pipeline parallelism cannot split a tied model: set model.tied = false")
    if parallelism.pipeline_parallel_degree > 1 and {"v", "o", "mlp"} <= set(config.variant.frozen):
        raise ConfigError(
            f"pipeline parallelism needs something to train on every stage, and "
            f"{config.variant.name!r} has nothing in its layers: use data parallelism"
        )
    inner = config.layers[0].attention.inner_attention
    if parallelism.context_parallel_degree > 1 and isinstance(
        inner, ScaledDotProductAttention.Config
    ):
        raise ConfigError(
            'context parallelism needs model.attention = "flex", and so a GPU: '
            "set parallelism.context_parallel_degree = 1"
        )

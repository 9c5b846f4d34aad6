"""Tensor parallelism: torchtitan's placements for a Llama, and our own for layers that mix.

The values of a head, and its matrix, are on one rank. The position embedding is split by rows, as
the token embedding is: both give partial sums until their output is redistributed.
"""

from typing import TYPE_CHECKING

import spmd_types as spmd
from torchtitan.models.common.decoder_sharding import (
    colwise_config,
    dense_activation_placement,
    dense_param_placement,
    dense_sequence_parallel_placement,
    norm_config,
    rowwise_config,
    set_decoder_sharding_config,
    set_dense_ffn_sharding,
    set_gqa_attention_sharding,
    set_gqa_inner_attention_local_map,
)
from torchtitan.protocols.sharding import LocalMapConfig, ShardingConfig, SpmdLayout

from mixit_titan.model.mixing_attention import MixingAttention, PositionedEmbedding

if TYPE_CHECKING:
    from mixit_titan.model.llama import MixitLlama


def set_sharding(config: "MixitLlama.Config", *, enable_sp: bool) -> None:
    """Set `sharding_config` on all parts of the model; `enable_sp` turns on sequence
    parallelism."""
    set_decoder_sharding_config(config, enable_sp=enable_sp)
    if isinstance(config.tok_embeddings, PositionedEmbedding.Config):
        states = config.tok_embeddings.sharding_config.state_shardings
        states["position_weight"] = dense_param_placement(tp=spmd.S(0))
    between_layers = (
        dense_sequence_parallel_placement() if enable_sp else dense_activation_placement(tp=spmd.I)
    )
    for layer in config.layers:
        layer.attention_norm.sharding_config = norm_config(enable_sp=enable_sp)
        layer.ffn_norm.sharding_config = norm_config(enable_sp=enable_sp)
        set_dense_ffn_sharding(
            layer.feed_forward, attn_x_layout=between_layers, enable_sp=enable_sp
        )
        if isinstance(layer.attention, MixingAttention.Config):
            _shard_mixing(layer.attention, between_layers, enable_sp)
        else:
            set_gqa_attention_sharding(layer.attention, enable_sp=enable_sp)
            set_gqa_inner_attention_local_map(layer.attention.inner_attention)


def _shard_mixing(
    attention: MixingAttention.Config, between_layers: SpmdLayout, enable_sp: bool
) -> None:
    attention.sharding_config = ShardingConfig(
        in_src_shardings={"x_BLD": between_layers},
        in_dst_shardings={"x_BLD": dense_activation_placement(tp=spmd.R)},
    )
    attention.wv.sharding_config = colwise_config()
    attention.wo.sharding_config = rowwise_config(output_sp=enable_sp)
    heads = dense_activation_placement(tp=spmd.S(2))
    attention.inner_attention.sharding_config = ShardingConfig(
        state_shardings={"weight": dense_param_placement(tp=spmd.S(0))},  # for the learned mixer
        in_src_shardings={"v_BLNH": heads},
        in_dst_shardings={"v_BLNH": heads},
        out_src_shardings=heads,
        local_map=LocalMapConfig(in_grad_placements=(heads,)),
    )

"""Builds a torchtitan model config and a ModelSpec from a shape, a stack and a recipe."""

import dataclasses
import importlib

from torch import nn
from torchtitan.models.common import Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import GQAttention, QKVLinear
from torchtitan.models.common.feed_forward import FeedForward
from torchtitan.models.common.param_init import skip_param_init
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.protocols.module import Module

from mixit_titan.device import has_gpu
from mixit_titan.errors import ConfigError
from mixit_titan.kernels.forms import Form
from mixit_titan.kernels.tiles import check_width
from mixit_titan.model.accounting import mixing_layers
from mixit_titan.model.freezing import FrozenStorage
from mixit_titan.model.hugging_face import HuggingFaceAdapter
from mixit_titan.model.initialization import LinearNormal, embedding_normal
from mixit_titan.model.llama import Block, MixitLlama, ScaledLinear, ShapedFeedForward
from mixit_titan.model.mixers.attention import HalvesRoPE
from mixit_titan.model.mixers.positional import AttentionBackend, Place
from mixit_titan.model.mixing_attention import MixingAttention, PositionedEmbedding
from mixit_titan.model.parallelize import parallelize
from mixit_titan.model.pipeline import pipeline
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import ROPE_SCALING, Shape
from mixit_titan.model.stack import Stack
from mixit_titan.model.storage import choose_form


def llama_config(
    shape: Shape,
    stack: Stack,
    recipe: Recipe | None = None,
    *,
    init_seed: int = 0,
    mixing_seed: int = 0,
    form: Form | None = None,
    dtype: str = "float32",
    attention: AttentionBackend = "auto",
    learned_positions: bool = False,
    frozen_storage: FrozenStorage = "sharded",
    on_gpu: bool | None = None,
) -> MixitLlama.Config:
    """Build the config of one model.

    `recipe` belongs to the mixing mixer, but layers with attention also take its residual,
    activation and linear scales, which by default leave a plain Llama unchanged. `form` and `dtype`
    are those of the mixing matrices; without a form they are stored if they fit in memory.
    `learned_positions` adds one vector per position even if no layer mixes, as some tasks require.
    `frozen_storage` is the key of [fsdp]. `on_gpu` says where the model will run, if not on this
    machine.
    """
    recipe = recipe or Recipe()
    if not stack.attends and shape.kv_heads not in (None, shape.heads):
        # Grouped keys and values save memory in attention; a mixing head has values only.
        shape = dataclasses.replace(shape, kv_heads=None)
    on_gpu = has_gpu() if on_gpu is None else on_gpu
    _check(shape, stack, recipe, on_gpu)
    spec = recipe.matrix_spec(mixing_seed, shape) if stack.drawn else None
    form = form or choose_form("auto", shape, dtype, layers=mixing_layers(shape, stack))
    place = Place(
        shape=shape,
        layer=0,
        seed=mixing_seed,
        spec=spec,
        form=form,
        dtype=dtype,
        attention=attention,
        on_gpu=on_gpu,
    )
    mixers = []
    for layer, pair in enumerate(stack.fill(shape.layers)):
        file = importlib.import_module(f"mixit_titan.model.mixers.{pair.mixer}")
        inner = file.inner(dataclasses.replace(place, layer=layer))
        around = _attention if pair.attends else _mixing
        mixers.append(around(shape, recipe, inner))
    skip, branch = recipe.residual_scales(shape.layers)
    layers = [
        Block.Config(
            attention_norm=_norm(shape),
            ffn_norm=_norm(shape),
            attention=mixer,
            feed_forward=_feed_forward(shape, recipe),
            skip=skip,
            branch=branch,
        )
        for mixer in mixers
    ]
    return MixitLlama.Config(
        dim=shape.width,
        vocab_size=shape.vocab,
        tok_embeddings=_embedding(shape, recipe, learned_positions or stack.mixes),
        norm=_norm(shape),
        lm_head=_linear(shape, recipe, shape.width, shape.vocab, bias=False),
        layers=layers,
        enable_weight_tying=shape.tied,
        stack=stack,
        shape=shape,
        recipe=recipe,
        mixing_seed=mixing_seed,
        init_seed=init_seed,
        frozen_storage=frozen_storage,
    )


def _check(shape: Shape, stack: Stack, recipe: Recipe, on_gpu: bool) -> None:
    """Refuse combinations that no model can have."""
    if shape.tied and stack.freezes("embedding") != stack.freezes("head"):
        raise ConfigError(
            "model.tied makes embedding and head one weight: freeze both of them or neither"
        )
    mixing = mixing_layers(shape, stack)
    if mixing and on_gpu:
        check_width(shape.head_dim)
    if mixing < shape.layers and stack.mixes and not recipe.causal:
        raise ConfigError(
            "model.mixing.causal = false needs a model of mixing layers only: no other mixer "
            "can see later tokens"
        )


def model_spec(flavor: str, config: MixitLlama.Config) -> ModelSpec:
    """Wrap a config in the ModelSpec that torchtitan's trainer takes."""
    return ModelSpec(
        name=f"mixit_titan/{config.stack.name}",
        flavor=flavor,
        model=config,
        parallelize_fn=parallelize,
        pipelining_fn=pipeline,
        post_optimizer_build_fn=None,
        state_dict_adapter=HuggingFaceAdapter,
    )


def _norm(shape: Shape) -> RMSNorm.Config:
    return RMSNorm.Config(
        normalized_shape=shape.width, eps=shape.norm_eps, param_init={"weight": nn.init.ones_}
    )


def _linear(
    shape: Shape,
    recipe: Recipe,
    fan_in: int,
    fan_out: int,
    *,
    bias: bool | None = None,
    down: bool = False,
) -> Linear.Config:
    draw = LinearNormal(shape.init_std, scaled=recipe.linear_scale)
    settings = {
        "in_features": fan_in,
        "out_features": fan_out,
        "bias": shape.bias if bias is None else bias,
        "param_init": {"weight": draw, "bias": nn.init.zeros_},
    }
    factor = recipe.linear_factor(fan_in, down=down)
    if factor == 1.0:
        return Linear.Config(**settings)
    return ScaledLinear.Config(**settings, factor=factor)


def _embedding(shape: Shape, recipe: Recipe, positioned: bool) -> Embedding.Config:
    draw = embedding_normal(shape, recipe)
    settings = {
        "num_embeddings": shape.vocab,
        "embedding_dim": shape.width,
        "param_init": {"weight": skip_param_init if shape.tied else draw, "position_weight": draw},
    }
    if positioned:
        return PositionedEmbedding.Config(**settings, seq_len=shape.seq_len)
    return Embedding.Config(**settings)


def _mixing(shape: Shape, recipe: Recipe, inner: Module.Config) -> MixingAttention.Config:
    return MixingAttention.Config(
        n_heads=shape.heads,
        wv=_linear(shape, recipe, shape.width, shape.width),
        wo=_linear(shape, recipe, shape.width, shape.width),
        inner_attention=inner,
    )


def _attention(shape: Shape, recipe: Recipe, inner: Module.Config) -> GQAttention.Config:
    if shape.head_dim % 2:
        raise ConfigError(
            f"model.width / model.heads = {shape.head_dim} is odd: rotary embeddings need an even "
            "head width, choose another number of heads"
        )
    kv_heads = shape.kv_heads or shape.heads
    return GQAttention.Config(
        dim=shape.width,
        n_heads=shape.heads,
        n_kv_heads=kv_heads,
        qkv_linear=QKVLinear.Config(
            head_dim=shape.head_dim,
            wq=_linear(shape, recipe, shape.width, shape.width),
            wkv=_linear(shape, recipe, shape.width, kv_heads * shape.head_dim),
        ),
        wo=_linear(shape, recipe, shape.width, shape.width),
        inner_attention=inner,
        # Hugging Face's layout for Llama: dimension i pairs with dimension i + half a head.
        rope=HalvesRoPE.Config(
            dim=shape.head_dim,
            max_seq_len=shape.seq_len,
            theta=shape.rope_theta,
            scaling="none" if shape.rope_factor == 1 else "llama",
            scaling_factor=shape.rope_factor,
            **ROPE_SCALING,
        ),
    )


def _feed_forward(shape: Shape, recipe: Recipe) -> FeedForward.Config:
    linears = {
        "w1": _linear(shape, recipe, shape.width, shape.hidden),
        "w2": _linear(shape, recipe, shape.hidden, shape.width, down=True),
        "w3": _linear(shape, recipe, shape.width, shape.hidden),
    }
    slope = recipe.gate_slope(shape.width)
    if slope is None:
        return FeedForward.Config(**linears)
    return ShapedFeedForward.Config(**linears, slope=slope)

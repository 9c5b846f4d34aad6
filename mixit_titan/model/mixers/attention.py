"""Causal attention within documents, with rotary embeddings.

    out_i = sum over j <= i of softmax(q_i k_j / sqrt(H)) v_j

    softmax of token 2    0.1  0.8  0.1
    values                6    2    1
    out                   2.3

torchtitan has the modules for GPUs. This file adds what it lacks: documents without flex or varlen
attention, as on a CPU, and rotary embeddings that copy less.

Shapes: B batch, L length, N heads, H head width.
"""

import importlib.util
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torchtitan.models.common import CosSinRoPE
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.config_utils import get_attention_config
from torchtitan.models.common.rope import ComplexRoPE
from torchtitan.protocols.module import Module
from torchtitan.tools import utils

from mixit_titan.errors import ConfigError
from mixit_titan.model.mixers.positional import AttentionBackend, Place


class DocumentAttention(ScaledDotProductAttention):
    """torchtitan's SDPA is causal over complete rows; with a mask, this one is causal within
    documents."""

    @dataclass(kw_only=True, slots=True)
    class Config(ScaledDotProductAttention.Config):
        pass

    def forward(
        self,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        attention_masks: torch.Tensor | None = None,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        seen = self.seen(q_BLNH, attention_masks)
        if seen is None:
            return super().forward(q_BLNH, k_BLNH, v_BLNH, scale=scale, enable_gqa=enable_gqa)
        out_BNLH = F.scaled_dot_product_attention(
            q_BLNH.transpose(1, 2),
            k_BLNH.transpose(1, 2),
            v_BLNH.transpose(1, 2),
            attn_mask=seen,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        return out_BNLH.transpose(1, 2)

    def seen(self, q_BLNH: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
        """Return the mask of what each query sees, given the mask of the documents; None:
        everything up to itself."""
        return mask


class HalvesRoPE(CosSinRoPE):
    """Computes the same numbers as CosSinRoPE: (a, b) -> (a cos - b sin, b cos + a sin), where a
    and b are the halves of a head. torchtitan first makes a rotated copy of the head, and pads its
    slices with zeros in the backward pass. This class also supports Llama 3.1's scaling, which
    torchtitan has for complex rotary embeddings only."""

    @dataclass(kw_only=True, slots=True)
    class Config(CosSinRoPE.Config):
        pass

    def _precompute_cache(self) -> torch.Tensor:
        if self.config.scaling != "llama":
            return super()._precompute_cache()
        turns = ComplexRoPE._precompute_cache(self)
        return torch.cat([turns.real, turns.real, turns.imag, turns.imag], dim=-1)

    @staticmethod
    def apply_rotary_emb(
        query: torch.Tensor, key: torch.Tensor, rope_cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The cache holds the cos and sin of the angles, each of them twice.
        cos, _, sin, _ = rope_cache.chunk(4, dim=-1)
        return _turn(query, cos, sin), _turn(key, cos, sin)


def _turn(x_BLNH: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x_BLNH.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x_BLNH)


def inner(place: Place) -> Module.Config:
    """Return the config of a layer's inner attention, the interface of every mixer's file."""
    return attention_backend(place.attention, place.on_gpu)


def attention_backend(name: AttentionBackend, on_gpu: bool) -> Module.Config:
    """Return the attention for a backend's name. `auto` is torchtitan's flex attention if there is
    a GPU; on a CPU it has no backward pass."""
    if name == "auto":
        name = "flex" if on_gpu else "sdpa"
    if name == "sdpa":
        return DocumentAttention.Config()
    if not on_gpu:
        raise ConfigError(
            f"model.attention = {name!r} needs a GPU and this machine has none: "
            "set it to 'auto' or 'sdpa'"
        )
    if name == "varlen" and (missing := missing_flash_attention()):
        raise ConfigError(
            f"model.attention = 'varlen' needs the package {missing} on this GPU, which is not "
            "installed: install it, or set model.attention = 'flex'"
        )
    return get_attention_config(name)


def missing_flash_attention() -> str | None:
    """Return the module that torchtitan's varlen attention imports on this GPU, if it is missing;
    it is not a dependency of torch or torchtitan."""
    modules = {"FA3": "flash_attn_interface", "FA4": "flash_attn.cute"}
    module = modules.get(utils.get_cuda_flash_attention_impl())
    if module is None or importlib.util.find_spec(module.partition(".")[0]) is not None:
        return None
    return module

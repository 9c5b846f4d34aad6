"""Hidden states and attention maps of a forward pass, captured by hooks.

Shapes: B batch, L length, D width, N heads, K key heads, H head width.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from torchtitan.models.common.attention import ScaledDotProductAttention

from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.mixers.window import in_window


def hidden_states(model: MixitLlama, tokens_BL: torch.Tensor) -> list[torch.Tensor]:
    """The states (B, L, D) after the embedding and after each layer, before the final norm."""
    states: list[torch.Tensor] = []

    def hook(module: nn.Module) -> RemovableHandle:
        return module.register_forward_hook(lambda _module, _args, out: states.append(out))

    _forward(model, tokens_BL, hook, [model.tok_embeddings, *model.layers.values()])
    return states


def attention_maps(model: MixitLlama, tokens_BL: torch.Tensor) -> list[torch.Tensor]:
    """The maps (B, N, L, L) of each layer: the weight of query position i on key position j."""
    maps: list[torch.Tensor] = []

    def see(inner: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if isinstance(inner, ScaledDotProductAttention):
            window = getattr(inner, "window", args[0].shape[1])
            maps.append(_softmax(args[0], args[1], kwargs["scale"], window))
        else:
            maps.append(_fixed(inner, args[0]))

    def hook(module: nn.Module) -> RemovableHandle:
        return module.register_forward_pre_hook(see, with_kwargs=True)

    inner = [block.attention.inner_attention for block in model.layers.values()]
    _forward(model, tokens_BL, hook, inner)
    return maps


@torch.no_grad()
def _forward(
    model: MixitLlama,
    tokens_BL: torch.Tensor,
    hook: Callable[[nn.Module], RemovableHandle],
    modules: Iterable[nn.Module],
) -> None:
    hooks = [hook(module) for module in modules]
    try:
        model(tokens_BL.to(model.tok_embeddings.weight.device))
    finally:
        for handle in hooks:
            handle.remove()


def _softmax(
    q_BLNH: torch.Tensor, k_BLKH: torch.Tensor, scale: float | None, window: int
) -> torch.Tensor:
    """softmax(scale q k^T) over the last `window` tokens of the prefix; q and k already have their
    rotary embedding."""
    heads, length = q_BLNH.shape[2], q_BLNH.shape[1]
    k_BLNH = k_BLKH.repeat_interleave(heads // k_BLKH.shape[2], dim=2)
    scores_BNLL = torch.einsum("binh,bjnh->bnij", q_BLNH, k_BLNH)
    scores_BNLL *= scale or 1 / math.sqrt(q_BLNH.shape[-1])
    seen_LL = in_window(length, window, q_BLNH.device)
    return scores_BNLL.masked_fill(~seen_LL, -torch.inf).softmax(-1)


def _fixed(inner: nn.Module, v_BLNH: torch.Tensor) -> torch.Tensor:
    """The matrix that a layer multiplies its values by: its output for the identity matrix."""
    batch, length, heads, _ = v_BLNH.shape
    eye_LL = torch.eye(length, dtype=v_BLNH.dtype, device=v_BLNH.device)
    out_1LNL = inner.forward(eye_LL.view(1, length, 1, length).expand(-1, -1, heads, -1))
    return out_1LNL.transpose(1, 2).expand(batch, -1, -1, -1)

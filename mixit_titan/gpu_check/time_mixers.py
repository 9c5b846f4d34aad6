"""A worker that times what mixes the tokens of one layer, forward and backward, in bfloat16.

Without a GPU each call is made once and nothing is measured, since times of Triton's interpreter
mean nothing. Shapes: B batch, L length, N heads, H head width.
"""

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from mixit_titan.device import has_gpu, local_device
from mixit_titan.gpu_check.packed_rows import packed_positions
from mixit_titan.gpu_check.process import Case, answer
from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
from mixit_titan.kernels.documents import document_table
from mixit_titan.kernels.forms import Form
from mixit_titan.model.build import llama_config
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.shapes import Shape, find_flavor
from mixit_titan.model.variants import VARIANTS

_WARM_UP, _REPEAT = 50, 200  # milliseconds


def time_mixer(mixer: str, documents: bool, flavor: str, length: int, batch: int) -> Case:
    """Return milliseconds. `mixer`: stored, generated, sdpa or flex. `documents`: rows are packed
    with them."""
    shape = dataclasses.replace(find_flavor(flavor), layers=1, seq_len=length)
    packed = packed_positions(batch, length).to(local_device()) if documents else None
    if mixer in ("stored", "generated"):
        call = _mixing(mixer, shape, batch, packed)
    elif mixer == "sdpa":
        call = _flash(shape, batch)
    else:
        call = _flex(shape, batch, packed)
    if not has_gpu():
        call()
        return {"milliseconds": None}
    from triton.testing import do_bench

    taken = do_bench(call, warmup=_WARM_UP, rep=_REPEAT, return_mode="median")
    return {"milliseconds": taken}


def _mixing(
    form: Form, shape: Shape, batch: int, packed: torch.Tensor | None
) -> Callable[[], object]:
    spec = RECIPES["paper"].matrix_spec(0, shape)
    device = local_device()
    state = mixing_state(form, spec, 0, range(shape.heads), dtype=torch.bfloat16, device=device)
    table = None if packed is None else document_table(packed)  # once per step, for all layers
    v_BLNH = _leaf(batch, shape.seq_len, shape.heads, shape.head_dim)
    return _both(lambda: causal_mix(v_BLNH, form, spec, state, table), v_BLNH)


def _flash(shape: Shape, batch: int) -> Callable[[], object]:
    length, width = shape.seq_len, shape.head_dim
    q_BNLH = _leaf(batch, shape.heads, length, width)
    k_BNLH, v_BNLH = (_leaf(batch, shape.kv_heads or shape.heads, length, width) for _ in "kv")

    def attend() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION if has_gpu() else SDPBackend.MATH):
            return F.scaled_dot_product_attention(
                q_BNLH, k_BNLH, v_BNLH, is_causal=True, enable_gqa=shape.kv_heads is not None
            )

    return _both(attend, q_BNLH, k_BNLH, v_BNLH)


def _flex(shape: Shape, batch: int, packed: torch.Tensor) -> Callable[[], object]:
    """Call flex attention as a model of this shape does."""
    with torch.device("meta"):
        model = llama_config(shape, VARIANTS["standard"], attention="flex").build()
    masks = model.get_attention_masks(packed)  # once per step, for all layers
    attention = model.layers["0"].attention.inner_attention
    length, width = shape.seq_len, shape.head_dim
    q_BLNH = _leaf(batch, length, shape.heads, width)
    k_BLNH, v_BLNH = (_leaf(batch, length, shape.kv_heads or shape.heads, width) for _ in "kv")

    def attend() -> torch.Tensor:
        return attention(
            q_BLNH,
            k_BLNH,
            v_BLNH,
            attention_masks=masks,
            enable_gqa=shape.kv_heads is not None,
        )

    return _both(attend, q_BLNH, k_BLNH, v_BLNH)


def _leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, device=local_device(), dtype=torch.bfloat16, requires_grad=True)


def _both(forward: Callable[[], torch.Tensor], *inputs: torch.Tensor) -> Callable[[], object]:
    grad = torch.randn_like(forward())
    return lambda: torch.autograd.grad(forward(), inputs, grad)


if __name__ == "__main__":
    answer(time_mixer)

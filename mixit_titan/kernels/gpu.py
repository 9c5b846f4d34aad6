"""The products on a GPU: what the kernel of triton_mixing.py is launched with.

Shapes: B batch, L length, N heads, H head width, M the longest length.
"""

import os

import torch

from mixit_titan.errors import ConfigError
from mixit_titan.kernels.documents import ALIGNMENT
from mixit_titan.kernels.forms import blocks

# Drawing an element takes as long as a tensor core takes to multiply it with some 400 columns. So a
# tile is multiplied with as many columns as registers hold: an accumulator of 128 x 256 in 8 warps.
# It leaves no room for a second block on an SM, which would draw the same tile again for its half
# of the columns. By what ptxas reports of the bfloat16 kernels for sm_90, where none of them spills
# (benchmarks/sass.py).
WARPS = 8
_WIDEST = 256
_COLUMNS = {2: _WIDEST, 4: 64, 8: 32}  # by bytes of an element of v
# Rows or columns of A in a step. In float32 there is no tensor core, and all products of a step are
# unrolled.
_STEP = {"normals": 32, "signs": 64, "stored": 64}
_STEP_FLOAT32 = {"normals": 16, "signs": 32, "stored": 16}
_STAGES = {"normals": 2, "signs": 2, "stored": 3}


def by_triton(device: torch.device) -> bool:
    """Whether products are Triton's: on a GPU, and in its interpreter, which tests use."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


def mix_stored(
    v_BLNH: torch.Tensor,
    matrix_NMM: torch.Tensor,
    documents: torch.Tensor | None,
    causal: bool,
    add_v: bool,
    transposed: bool,
) -> torch.Tensor:
    """A v or A^T v. Of a causal matrix nothing is read above the blocks on its diagonal."""
    flags = {"CAUSAL": causal, "IDENTITY": add_v, "SINK": False, "TRANSPOSED": transposed}
    flags |= {"SIGNS": False, "PACKED": matrix_NMM.ndim == 4}
    return _launch(v_BLNH, documents, matrix_NMM.shape[1], matrix_NMM, None, None, None, flags)


def mix_generated(
    v_BLNH: torch.Tensor,
    key: torch.Tensor,
    means_NM: torch.Tensor,
    stds_N: torch.Tensor,
    documents: torch.Tensor | None,
    causal: bool,
    identity: bool,
    sink_head: bool,
    signs: bool,
    transposed: bool,
) -> torch.Tensor:
    """A v or A^T v, with A as it is drawn."""
    flags = {"CAUSAL": causal, "IDENTITY": identity, "SINK": sink_head, "TRANSPOSED": transposed}
    flags |= {"SIGNS": signs, "PACKED": False}
    return _launch(v_BLNH, documents, means_NM.shape[1], None, key, means_NM, stds_N, flags)


def _launch(
    v_BLNH: torch.Tensor,
    documents: torch.Tensor | None,
    m: int,
    matrix_NMM: torch.Tensor | None,
    key: torch.Tensor | None,
    means_NM: torch.Tensor | None,
    stds_N: torch.Tensor | None,
    flags: dict[str, bool],
) -> torch.Tensor:
    from triton.runtime.errors import OutOfResources

    from mixit_titan.kernels.triton_mixing import mix

    if v_BLNH.stride(3) != 1:
        v_BLNH = v_BLNH.contiguous()
    batch, length, heads, width = v_BLNH.shape
    out_BLNH = torch.empty(v_BLNH.shape, dtype=v_BLNH.dtype, device=v_BLNH.device)
    source = "stored" if matrix_NMM is not None else "signs" if flags["SIGNS"] else "normals"
    tile = tiles(source, width, v_BLNH.element_size(), batch if documents is None else None)
    # Head after head, so that the values and the matrix of one can stay in the cache.
    grid = (_programs(batch, length, tile["GROUP"], documents is not None), heads)
    arguments = (documents, matrix_NMM, key, means_NM, stds_N, batch, length, m)
    arguments += v_BLNH.stride()[:3] + ((0, 0) if matrix_NMM is None else matrix_NMM.stride()[:2])
    try:
        mix[grid](v_BLNH, out_BLNH, *arguments, **tile, num_warps=WARPS, **flags)
    except OutOfResources as error:
        cure = "use one that has more"
        if matrix_NMM is not None:
            cure = 'set model.mixing.storage = "generated", which needs less'
        raise ConfigError(
            f"a mixing kernel needs {error.required} of {error.name} and this GPU has "
            f"{error.limit}: {cure}"
        ) from None
    return out_BLNH


def tiles(source: str, width: int, itemsize: int, batch: int | None) -> dict[str, int]:
    """What a program works on: GROUP documents, or rows of a `batch`, of padded width side by side,
    and K rows or columns of A in a step."""
    check_width(width)
    padded = max(16, _power_of_two(width))
    group = min(ALIGNMENT, max(1, _COLUMNS[itemsize] // padded))
    if batch is not None:
        group = min(group, _power_of_two(batch))
    step = (_STEP if itemsize == 2 else _STEP_FLOAT32)[source]
    return {"WIDTH": width, "PADDED": padded, "GROUP": group, "K": step, "STAGES": _STAGES[source]}


def check_width(width: int) -> None:
    """Refuse heads that no tile has room for."""
    if width > _WIDEST:
        raise ConfigError(
            f"heads of width {width} are too wide for the mixing kernel of a GPU, which takes up "
            f"to {_WIDEST}: raise model.heads"
        )


def _programs(batch: int, length: int, group: int, documents: bool) -> int:
    """One for each group, if documents are not much shorter than a block: how many groups there
    are is known on the device only, and a program that is done with one looks for the next."""
    groups = -(-batch // group) + (ALIGNMENT // group if documents else 0)
    return groups * blocks(length)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()

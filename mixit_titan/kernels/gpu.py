"""The products on a GPU: the arguments that the kernel of triton_mixing.py is launched with.

Shapes: B batch, L length, N heads, H head width, M the longest length.
"""

import os

import torch

from mixit_titan.errors import ConfigError
from mixit_titan.kernels.forms import blocks
from mixit_titan.kernels.tiles import LARGEST_GROUP, WARPS, source_of, tiles


def by_triton(device: torch.device) -> bool:
    """Return whether products use Triton: on a GPU, and in Triton's interpreter, which tests
    use."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


def mix_stored(
    v_BLNH: torch.Tensor,
    matrix_NMM: torch.Tensor,
    documents: torch.Tensor | None,
    causal: bool,
    add_v: bool,
    transposed: bool,
) -> torch.Tensor:
    """Return A v or A^T v. Of a causal matrix nothing above the blocks on its diagonal is read."""
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
    """Return A v or A^T v, with A drawn inside the kernel."""
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
    source = source_of("generated" if matrix_NMM is None else "stored", signs=flags["SIGNS"])
    tile = tiles(source, width, v_BLNH.element_size(), batch if documents is None else None)
    # Head after head, so that the values and the matrix of one head can stay in the cache.
    grid = (_programs(batch, length, tile["GROUP"], documents is not None), heads)
    arguments = (documents, matrix_NMM, key, means_NM, stds_N, batch, length, m)
    arguments += v_BLNH.stride()[:3] + ((0, 0) if matrix_NMM is None else matrix_NMM.stride()[:2])
    try:
        with torch.cuda.device_of(v_BLNH):  # Triton uses the current device
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


def _programs(batch: int, length: int, group: int, documents: bool) -> int:
    """Return one program for each group, unless documents are much shorter than a block: the number
    of groups is known on the device only, and a program that is done with one looks for the
    next."""
    groups = -(-batch // group) + (LARGEST_GROUP // group if documents else 0)
    return groups * blocks(length)

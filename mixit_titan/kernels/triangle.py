"""The stored product of a CPU, in C (triangle.c): compiled once for a machine, and kept.

Where there is no C compiler, stored.py does with torch's products.
"""

import ctypes
import functools
import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torchtitan.tools.logging import logger

from mixit_titan.cache import cache_folder

_SOURCE = Path(__file__).with_suffix(".c")
_FLAGS = {"AVX2": ["-mavx2", "-mfma"], "AVX512": ["-mavx512f", "-mfma"]}
"""By what torch finds the CPU to be able to do."""


class _Product(ctypes.Structure):
    """`product` in triangle.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("a", "v", "out")),
        *((name, ctypes.c_long) for name in ("batch", "length", "heads", "width")),
        *((name, ctypes.c_long) for name in ("a_head", "a_row", "v_batch", "v_row", "v_head")),
        ("transposed", ctypes.c_long),
    ]


@functools.cache
def triangle_mix() -> Callable[..., None] | None:
    """`mix(out, matrix, v, column, transposed)`, or None where it cannot be compiled."""
    try:
        library = ctypes.CDLL(str(_compiled()))
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        logger.warning(
            "The mixing product could not be compiled for this CPU and is slower without: install "
            f"a C compiler, or name one by CC ({said[-1] if said else error})"
        )
        return None
    return functools.partial(_mix, library.triangle_mix)


def _mix(
    call: Callable[[object], None],
    out_BLNH: torch.Tensor,
    matrix_NLL: torch.Tensor,
    v_BLNH: torch.Tensor,
    column: int,
    transposed: bool,
) -> None:
    """float32, and `out` contiguous. Row x of A or A^T is row x of the matrix from `column` on."""
    if v_BLNH.stride(3) != 1:
        v_BLNH = v_BLNH.contiguous()
    a = matrix_NLL.data_ptr() + column * matrix_NLL.element_size()
    strides = (*matrix_NLL.stride()[:2], *v_BLNH.stride()[:3])
    pointers = (a, v_BLNH.data_ptr(), out_BLNH.data_ptr())
    call(ctypes.byref(_Product(*pointers, *v_BLNH.shape, *strides, transposed)))


def _compiled() -> Path:
    """The library, made unless it is there."""
    capability = torch.backends.cpu.get_cpu_capability()
    flags = ["-O3", "-fPIC", "-fopenmp", *_FLAGS.get(capability, [])]
    compiler = shlex.split(os.environ.get("CC") or "cc")
    digest = hashlib.sha256(_SOURCE.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    library = cache_folder() / f"triangle-{digest}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        part = Path(folder) / "triangle"
        # Linked without OpenMP's library: torch has one loaded, and a second one's threads would
        # wait on the cores that the first one's need.
        for words in (
            [*compiler, *flags, "-c", str(_SOURCE), "-o", f"{part}.o"],
            [*compiler, "-shared", f"{part}.o", "-o", f"{part}.so"],
        ):
            subprocess.run(words, check=True, capture_output=True, text=True)
        Path(f"{part}.so").replace(library)  # whole or not there: other ranks compile it too
    return library

"""The stored product of a CPU, in C (triangle.c), compiled once per machine and kept.

If it cannot be compiled, stored.py uses torch's products.
"""

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from mixit_titan.files import cache_folder

_SOURCE = Path(__file__).with_suffix(".c")
_FLAGS = {"AVX2": ["-mavx2", "-mfma"], "AVX512": ["-mavx512f", "-mfma"]}
"""Compiler options by the capability that torch reports of the CPU."""
_BFLOAT16 = "-mavx512bf16"


class _Product(ctypes.Structure):
    """The signature of `product` in triangle.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("a", "v", "out", "documents")),
        *((name, ctypes.c_long) for name in ("count", "length", "heads", "width")),
        *((name, ctypes.c_long) for name in ("a_head", "a_row", "v_batch", "v_row", "v_head")),
        *((name, ctypes.c_long) for name in ("bfloat16", "add_v", "transposed", "threads")),
    ]


@functools.cache
def is_faster(dtype: torch.dtype) -> bool:
    """Return whether this product is faster than torch's. In bfloat16 torch's wins on CPUs with
    AMX, which this product does not use."""
    if dtype == torch.bfloat16:
        return not torch.cpu.get_capabilities().get("amx_bf16", False)
    return dtype == torch.float32


@functools.cache
def compiled_mix() -> Callable[..., None] | None:
    """Return `mix(out, matrix, v, documents, ...)`, or None if it cannot be compiled or loaded."""
    try:
        library = _library()
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        logging.getLogger(__name__).warning(
            f"The mixing product in C cannot be compiled or loaded ({said[-1]}): torch's is used "
            "instead, which is slower. It needs a C compiler with OpenMP, such as gcc; CC names one"
        )
        return None
    return functools.partial(_mix, library.triangle_mix)


def _mix(
    call: Callable[[object], None],
    out_BLNH: torch.Tensor,
    matrix_NLL: torch.Tensor,
    v_BLNH: torch.Tensor,
    documents: torch.Tensor | None,
    column: int,
    add_v: bool,
    transposed: bool,
) -> None:
    """Multiply. All tensors are float32 or all bfloat16, and `out` is contiguous. Row x of A or A^T
    is row x of the matrix from `column` on; the number of columns is even."""
    if v_BLNH.stride(3) != 1:
        v_BLNH = v_BLNH.contiguous()
    a = matrix_NLL.data_ptr() + column * matrix_NLL.element_size()
    table = None if documents is None else documents.data_ptr()
    strides = (*matrix_NLL.stride()[:2], *v_BLNH.stride()[:3])
    pointers = (a, v_BLNH.data_ptr(), out_BLNH.data_ptr(), table)
    last = (v_BLNH.dtype == torch.bfloat16, add_v, transposed, torch.get_num_threads())
    call(ctypes.byref(_Product(*pointers, *v_BLNH.shape, *strides, *last)))


def _library() -> ctypes.CDLL:
    """Return the library that was kept, or a new one, which is kept once it has been loaded."""
    flags = ["-O3", "-fPIC", "-fopenmp", *_isa()]
    compiler = shlex.split(os.environ.get("CC") or "cc")
    key = " ".join([platform.machine(), *compiler, *flags]).encode() + _SOURCE.read_bytes()
    kept = cache_folder() / f"triangle-{hashlib.sha256(key).hexdigest()[:16]}.so"
    if kept.exists():
        with contextlib.suppress(OSError):
            return ctypes.CDLL(str(kept))
        kept.unlink(missing_ok=True)  # it is damaged
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = _compile(compiler, flags, Path(folder))
        except subprocess.CalledProcessError:  # gcc before version 10 does not know the option
            made = _compile(compiler, [f for f in flags if f != _BFLOAT16], Path(folder))
        library = ctypes.CDLL(str(made))
        with contextlib.suppress(OSError):  # if the home is not writable, it is compiled each time
            _keep(made, kept)
    return library


def _isa() -> list[str]:
    """Return torch's CPU capability; ATEN_CPU_CAPABILITY=avx2 in the environment lowers it for
    torch, and so for this product."""
    capability = torch.backends.cpu.get_cpu_capability()
    flags = _FLAGS.get(capability, [])
    if capability == "AVX512" and torch.cpu.get_capabilities().get("avx512_bf16", False):
        return [*flags, _BFLOAT16]
    return flags


def _compile(compiler: list[str], flags: list[str], folder: Path) -> Path:
    """Compile without linking OpenMP's library: torch has one loaded, and the threads of a second
    one would compete for the cores."""
    middle, made = folder / "triangle.o", folder / "triangle.so"
    for words in (
        [*compiler, *flags, "-c", str(_SOURCE), "-o", str(middle)],
        [*compiler, "-shared", str(middle), "-o", str(made)],
    ):
        subprocess.run(words, check=True, capture_output=True, text=True)
    return made


def _keep(made: Path, kept: Path) -> None:
    """Install the library atomically, and never over one that another process may have loaded."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        os.link(shutil.copy(made, folder), kept)

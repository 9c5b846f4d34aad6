"""The stored product of a CPU, in C (triangle.c): compiled once for a machine, and kept.

Where that cannot be, stored.py does with torch's products.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torchtitan.tools.logging import logger

from mixit_titan.files import cache_folder

_SOURCE = Path(__file__).with_suffix(".c")
_FLAGS = {"AVX2": ["-mavx2", "-mfma"], "AVX512": ["-mavx512f", "-mfma"]}
"""By what torch finds the CPU to be able to do."""


class _Product(ctypes.Structure):
    """`product` in triangle.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("a", "v", "out")),
        *((name, ctypes.c_long) for name in ("batch", "length", "heads", "width")),
        *((name, ctypes.c_long) for name in ("a_head", "a_row", "v_batch", "v_row", "v_head")),
        *((name, ctypes.c_long) for name in ("transposed", "threads")),
    ]


@functools.cache
def compiled_mix() -> Callable[..., None] | None:
    """`mix(out, matrix, v, column, transposed)`, or None where it cannot be compiled or loaded."""
    try:
        library = _library()
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        logger.warning(
            f"The mixing product in C cannot be compiled or loaded ({said[-1]}): torch's takes its "
            "place, which is slower. It needs a C compiler with OpenMP, such as gcc; CC names one"
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
    last = (transposed, torch.get_num_threads())
    call(ctypes.byref(_Product(*pointers, *v_BLNH.shape, *strides, *last)))


def _library() -> ctypes.CDLL:
    """The one that was kept; or a new one, which is kept once it has been loaded."""
    flags = ["-O3", "-fPIC", "-fopenmp", *_FLAGS.get(torch.backends.cpu.get_cpu_capability(), [])]
    compiler = shlex.split(os.environ.get("CC") or "cc")
    key = " ".join([platform.machine(), *compiler, *flags]).encode() + _SOURCE.read_bytes()
    kept = cache_folder() / f"triangle-{hashlib.sha256(key).hexdigest()[:16]}.so"
    if kept.exists():
        with contextlib.suppress(OSError):
            return ctypes.CDLL(str(kept))
        kept.unlink(missing_ok=True)  # damaged
    with tempfile.TemporaryDirectory() as folder:
        made = _compile(compiler, flags, Path(folder))
        library = ctypes.CDLL(str(made))
        with contextlib.suppress(OSError):  # a home that cannot be written to: compiled each time
            _keep(made, kept)
    return library


def _compile(compiler: list[str], flags: list[str], folder: Path) -> Path:
    """Linked without OpenMP's library: torch has one loaded, and a second one's threads would wait
    on the cores that the first one's need."""
    middle, made = folder / "triangle.o", folder / "triangle.so"
    for words in (
        [*compiler, *flags, "-c", str(_SOURCE), "-o", str(middle)],
        [*compiler, "-shared", str(middle), "-o", str(made)],
    ):
        subprocess.run(words, check=True, capture_output=True, text=True)
    return made


def _keep(made: Path, kept: Path) -> None:
    """Whole or not there, and never in the place of one that another process may have loaded."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        os.link(shutil.copy(made, folder), kept)

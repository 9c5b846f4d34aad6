"""Compiles a trivial Triton kernel and prints for which architecture; on a GPU it also runs it."""

import time

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_SIZE = 128


@triton.jit
def _double(x, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    tl.store(x + index, 2 * tl.load(x + index))


def _run_here() -> str:
    x = torch.arange(_SIZE, device="cuda", dtype=torch.float32)
    _double[(1,)](x, SIZE=_SIZE)
    if x.tolist() != [2.0 * n for n in range(_SIZE)]:
        raise SystemExit("the kernel computed a wrong result")
    major, minor = torch.cuda.get_device_capability()
    return f"a kernel runs here (sm_{major}{minor})"


def _compile_for_h100() -> str:
    source = ASTSource(_double, {"x": "*fp32", "SIZE": "constexpr"}, constexprs={"SIZE": _SIZE})
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    if not built.asm["cubin"]:
        raise SystemExit("Triton produced no machine code")
    return "a kernel compiles for sm_90 (there is no GPU to run it)"


if __name__ == "__main__":
    begin = time.monotonic()
    said = _run_here() if torch.cuda.is_available() else _compile_for_h100()
    print(f"{said}, {time.monotonic() - begin:.1f} s")

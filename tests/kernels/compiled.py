"""Compiles the Triton kernels for an H100, which needs none, and prints their names."""

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from mixit_titan.kernels import triton_mixing

POINTERS = {"v": "bf16", "out": "bf16", "key": "i64", "means": "fp32", "stds": "fp32"}
POINTERS |= {"starts": "i64", "ends": "i64"}
NUMBERS = ("length", "longest", "batch", "heads", "bounds_stride")
CONSTANTS = {"BATCHES": 2, "WIDTH": 64, "COLUMNS": 128, "CAUSAL": True}
CONSTANTS |= {"IDENTITY": True, "SINK": True}

if __name__ == "__main__":
    for kernel, rows in ((triton_mixing._forward, 64), (triton_mixing._transposed, 32)):
        constants = {**CONSTANTS, "ROWS": rows}
        signature = {name: f"*{dtype}" for name, dtype in POINTERS.items()}
        signature |= dict.fromkeys(NUMBERS, "i32") | dict.fromkeys(constants, "constexpr")
        source = ASTSource(kernel, signature, constexprs=constants)
        built = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
        assert built.asm["cubin"]
        print(kernel.__name__)

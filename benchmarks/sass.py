"""What the mixing kernels cost on an H100, from their machine code: no GPU is needed.

    python benchmarks/sass.py [--json] [--rare]

compiles them for sm_90, bfloat16 and packed documents, and counts for each the instructions of a
warp per element of A that a thread draws or loads, in the innermost loop that multiplies. A
scheduler issues one instruction per cycle, and an H100 has 132 SMs with 4 schedulers each. Also
registers, spilled bytes per thread, and how many blocks fit on an SM. --rare: kernels without a
budget.
"""

import argparse
import json
import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from triton.runtime.jit import JITFunction

from mixit_titan.kernels import triton_mixing, triton_noise
from mixit_titan.kernels.forms import BLOCK
from mixit_titan.kernels.tiles import WARPS, Source, tiles
from mixit_titan.tables import markdown_table

_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@\S+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
# Of an SM of an H100: registers, bytes of shared memory (1 KiB of them is each block's), threads.
_REGISTERS, _SHARED, _THREADS = 65536, 233472, 2048


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel, as an H100 would run it."""

    name: str
    source: str
    """drawn or stored: where a tile of A comes from."""
    instructions_per_element: float
    edge_instructions_per_element: float
    """In the tiles that are masked: those on the diagonal and at the ends of documents."""
    instructions_per_group: int
    """Of a thread for a group of documents, beside its tiles."""
    registers: int
    spill_bytes: int
    shared_bytes: int
    blocks_per_sm: int


def mixing_kernel(
    source: Source,
    width: int,
    *,
    transposed: bool,
    causal: bool = True,
    sink: bool = False,
    documents: bool = True,
    dtype: str = "bf16",
) -> Kernel:
    """The product as `gpu._launch` launches it."""
    stored, signs = source == "stored", source == "signs"
    pointers = {"v": dtype, "out": dtype, "table": "i32", "matrix": dtype}
    pointers |= {"key": "i64", "means": "fp32", "stds": "fp32"}
    absent = ["key", "means", "stds"] if stored else ["matrix"]
    absent += [] if documents else ["table"]
    flags = {"CAUSAL": causal, "IDENTITY": True, "SINK": sink, "TRANSPOSED": transposed}
    flags |= {"SIGNS": signs, "PACKED": stored and causal}
    itemsize = {"bf16": 2, "fp32": 4}[dtype]
    tile = tiles(source, width, itemsize, None)
    constants = tile | flags | dict.fromkeys(absent)
    made = _compile(triton_mixing.mix, pointers, constants, WARPS)
    name = f"{'transposed' if transposed else 'forward'}, width {width}"
    for word, there in (
        ("signs", signs),
        ("sink head", sink),
        ("not causal", not causal),
        ("whole rows", not documents),
        (dtype, dtype != "bf16"),
    ):
        name += f", {word}" if there else ""
    elements = BLOCK * tile["K"] / (32 * WARPS)
    return _measure(name, "stored" if stored else "drawn", made, elements, WARPS)


def row_means_kernel(*, signs: bool = False) -> Kernel:
    """The kernel that computes the means of rows."""
    kernel, columns = (
        (triton_noise._sign_means, triton_noise.SIGN_COLUMNS)
        if signs
        else (triton_noise._row_means, triton_noise.COLUMNS)
    )
    constants = {"CAUSAL": True, "R": triton_noise.ROWS, "K": columns}
    made = _compile(kernel, {"key": "i64", "means": "fp32"}, constants, 4)
    elements = triton_noise.ROWS * columns / (32 * 4)
    name = "row means, signs" if signs else "row means"
    return _measure(name, "drawn", made, elements, 4)


def _compile(
    kernel: JITFunction, pointers: dict[str, str], constants: dict[str, object], warps: int
) -> object:
    names = kernel.arg_names
    signature = {name: "i32" for name in names}
    signature |= {name: f"*{dtype}" for name, dtype in pointers.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    # Pointers and strides are multiples of 16, as those of a model are; lengths may not be.
    aligned = [n for n in names if n not in constants and n not in ("batch", "length", "m")]
    source = ASTSource(
        kernel,
        signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


def _measure(name: str, source: str, made: object, elements: float, warps: int) -> Kernel:
    """`elements`: those of a tile that one thread draws or loads."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        code, usage = (
            subprocess.run(
                [_CUOBJDUMP, flag, file.name], capture_output=True, text=True, check=True
            ).stdout
            for flag in ("-sass", "-res-usage")
        )
    used = dict(re.findall(r"\b(REG|STACK):(\d+)", usage))
    registers, shared = int(used["REG"]), made.metadata.shared
    held = -(-registers // 8) * 8 * 32 * warps
    blocks = min(_REGISTERS // held, _SHARED // (shared + 1024), _THREADS // (32 * warps))
    inside, edge, group = _loops(code)
    return Kernel(
        name=name,
        source=source,
        instructions_per_element=round(inside / elements, 2),
        edge_instructions_per_element=round(edge / elements, 2),
        instructions_per_group=group - inside - edge,
        registers=registers,
        spill_bytes=int(used["STACK"]),
        shared_bytes=shared,
        blocks_per_sm=blocks,
    )


def _loops(code: str) -> tuple[int, int, int]:
    """Instructions of the two inner loops with a product, the shorter first, and of the loop around
    them; where there are none, of the longest loop."""
    found = [
        (int(match[1], 16), match[2], match[3])
        for match in map(_INSTRUCTION.search, code.splitlines())
        if match
    ]
    place = {address: i for i, (address, _, _) in enumerate(found)}
    loops = []
    for i, (address, opcode, operands) in enumerate(found):
        target = re.search(r"0x([0-9a-f]+)", operands) if opcode.startswith("BRA") else None
        if target and int(target[1], 16) < address:
            loops.append([op for _, op, _ in found[place[int(target[1], 16)] : i + 1]])
    products = [len(ops) for ops in loops if _multiplies(ops)]
    if not products:
        longest = max(map(len, loops))
        return longest, longest, 2 * longest
    inside, edge, *_ = sorted(products)
    return inside, edge, max(products)


def _multiplies(ops: list[str]) -> bool:
    """By a tensor core; in float32, which has none, by hundreds of multiplications."""
    return any(op.startswith(("HGMMA", "HMMA")) for op in ops) or ops.count("FFMA") > 256


def kernels() -> list[Kernel]:
    """All that is budgeted."""
    found = [
        mixing_kernel(source, width, transposed=transposed)
        for source in ("normals", "signs", "stored")
        for width in (64, 128)
        for transposed in (False, True)
    ]
    for transposed in (False, True):
        found.append(mixing_kernel("normals", 64, transposed=transposed, sink=True))
        found.append(mixing_kernel("normals", 64, transposed=transposed, causal=False))
    return [*found, row_means_kernel(), row_means_kernel(signs=True)]


def rare_kernels() -> list[Kernel]:
    """Signs in the cases that no pretraining config has, and float32."""
    found = [
        mixing_kernel("signs", 64, transposed=transposed, **case)
        for case in ({"sink": True}, {"causal": False}, {"documents": False})
        for transposed in (False, True)
    ]
    return found + [
        mixing_kernel(source, width, transposed=transposed, dtype="fp32")
        for source in ("normals", "stored")
        for width in (64, 128)
        for transposed in (False, True)
    ]


def main() -> None:
    """Print the costs of all kernels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rare", action="store_true", help="what is not budgeted: float32 etc.")
    args = parser.parse_args()
    found = [asdict(kernel) for kernel in (rare_kernels() if args.rare else kernels())]
    if args.json:
        print(json.dumps(found))
    else:
        print(markdown_table(list(found[0]), [list(kernel.values()) for kernel in found], left=2))


if __name__ == "__main__":
    main()

"""How fast MixiT would train on an H100 against standard: modelled, because none is here.

    python benchmarks/h100.py --out runs/h100

Prints two tables and writes DIR/h100.json: `kernels`, as benchmarks/sass.py reads them off their
machine code, and `models`, a step of training of each flavor by each form of the mixing. ASSUMED,
which is in the file too, says what the times rest on. Trust ratios, not milliseconds.
"""

import dataclasses
import heapq
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sass
import torch
import tyro

from mixit_titan.files import make_folder, write_text
from mixit_titan.kernels import gpu
from mixit_titan.kernels.documents import document_table
from mixit_titan.kernels.forms import BLOCK, Form, packed_bytes
from mixit_titan.model.accounting import count, memory_per_rank
from mixit_titan.model.shapes import FLAVORS, Shape
from mixit_titan.model.storage import choose_form, room_for_matrices
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tables import markdown_table

SMS, CLOCK = 132, 1.755e9
PRODUCTS = 2048  # elements of A times a column, that the tensor cores of an SM do in a cycle
LANES = 128  # instructions of a thread that an SM issues in a cycle: 4 schedulers of 32
CACHE, MEMORY = 5.5e12, 2.8e12  # bytes a second
PEAK, SHARE = 989e12, 0.45
LAUNCH = 4e-6
# FLOPS of attention, forward and backward, by head width.
FLEX = {64: (330e12, 260e12), 128: (390e12, 330e12)}
FLASH = {64: (400e12, 320e12), 128: (600e12, 500e12)}
MEDIAN, SPREAD = 600, 1.0
ASSUMED = {
    "modelled": "nothing here was measured on a GPU",
    "gpu": f"H100 SXM: {SMS} SMs at {CLOCK / 1e9} GHz, each issues 4 instructions of a warp and "
    "multiplies 2048 elements of A with a column in a cycle",
    "memory": f"{CACHE / 1e12} TB/s from the L2 cache, {MEMORY / 1e12} TB/s from memory, which v, "
    "the output and a stored A, as far as the longest document reaches, cross once per product",
    "overlap": "ratio_to_standard: drawing or addressing a tile and multiplying it take turns; "
    "ratio_if_overlapped: the longer of the two counts",
    "outside": f"all but the mixers at {SHARE:.0%} of {PEAK / 1e12:.0f} TFLOPS, nothing recomputed",
    "attention": "standard takes flex attention at 330 and 260 TFLOPS (forward, backward; 390 and "
    "330 at head width 128), as training does, and skips blocks of 128 x 128 that have no pair of "
    "one document; ratio_to_flash: FlashAttention 3 instead, at 400 and 320 (600 and 500) TFLOPS",
    "documents": f"streams of lognormal documents, median {MEDIAN} tokens, deviation {SPREAD} of "
    "the logarithm, seed 0",
    "auto": "8 ranks of 80 GB share weights and moments; activations take 2 (8 width + 4 hidden) "
    "bytes a token and layer, logits 6 vocab / 8 bytes a token",
}


@dataclass
class Arguments:
    """Model a step of training on an H100 from the machine code of the kernels."""

    out: Path


@dataclass(frozen=True)
class Setting:
    flavor: str
    length: int
    batch: int
    bar: float | None = None
    """What ratio_to_standard should reach."""

    @property
    def shape(self) -> Shape:
        return dataclasses.replace(FLAVORS[self.flavor], seq_len=self.length)


SETTINGS = (
    Setting("160m", 2048, 32, bar=1.10),
    Setting("160m", 8192, 8, bar=1.10),
    Setting("1b", 2048, 8, bar=1.05),
    Setting("1b", 8192, 2),
    Setting("8b", 2048, 4, bar=1.05),
    Setting("8b", 8192, 1),
)


def stream(batch: int, length: int) -> torch.Tensor:
    """Positions of rows that begin within a document."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(batch):
        sizes = [math.ceil(draw.random() * draw.lognormal(math.log(MEDIAN), SPREAD))]
        while sum(sizes) < length:
            sizes.append(max(2, int(draw.lognormal(math.log(MEDIAN), SPREAD))))
        rows.append(np.concatenate([np.arange(size) for size in sizes])[:length])
    return torch.from_numpy(np.stack(rows))


def groups(positions: torch.Tensor, group: int) -> list[tuple[int, int, int]]:
    """(block, shortest, longest) of the groups of documents, as the programs take them."""
    table = document_table(positions)
    entries = table[1 : 1 + int(table[0, 0])].view(-1, group, 4)
    found = []
    for entry in entries:
        sizes = entry[:, 3][entry[:, 3] > 0]
        if len(sizes):
            found.append((int(entry[0, 0]), int(sizes.min()), int(sizes.max())))
    return found


def steps(
    block: int, shortest: int, longest: int, step: int, *, transposed: bool
) -> tuple[int, int]:
    """Others that a program walks over inside and at the edges (triton_walk.walk)."""
    start = block * BLOCK
    diagonal = min(start + BLOCK, longest) - start
    if not transposed:
        return start, -(-diagonal // step) * step
    below = max(start + BLOCK, shortest // step * step)
    inside = below - start - BLOCK
    return inside, sum(-(-max(0, n) // step) * step for n in (diagonal, longest - below))


def product_seconds(
    kernel: sass.Kernel, source: str, setting: Setting, positions: torch.Tensor, transposed: bool
) -> dict[str, float]:
    """One product of one layer: tiles in turn, and overlapped."""
    shape = setting.shape
    tile = gpu.tiles(source, shape.head_dim, 2, None)
    columns = tile["GROUP"] * tile["PADDED"]
    step = BLOCK if source == "normals" and not transposed else tile["K"]
    taken: dict[str, list[float]] = {"in turn": [], "overlapped": []}
    for entry in groups(positions, tile["GROUP"]):
        inside, edge = (n * BLOCK for n in steps(*entry, step, transposed=transposed))
        issue = inside * kernel.instructions_per_element
        issue += edge * kernel.edge_instructions_per_element
        issue += kernel.instructions_per_group * 32 * gpu.WARPS
        loaded = (inside + edge) / BLOCK * (columns + (BLOCK if source == "stored" else 0)) * 2
        fed = max((inside + edge) * columns / PRODUCTS, loaded / (CACHE / SMS / CLOCK))
        taken["in turn"].append(issue / LANES + fed)
        taken["overlapped"].append(max(issue / LANES, fed))
    moved = 4 * positions.numel() * shape.width
    if source == "stored":
        moved += shape.heads * packed_bytes(int(positions.max()) + 1, 2)
    return {
        name: LAUNCH + max(_scheduled(cycles * shape.heads) / CLOCK, moved / MEMORY)
        for name, cycles in taken.items()
    }


def _scheduled(programs: list[float]) -> float:
    """Cycles until the last one ends, if an SM that is free takes the next."""
    free = [0.0] * SMS
    for cycles in programs:
        heapq.heappush(free, heapq.heappop(free) + cycles)
    return max(free)


def attention_seconds(
    setting: Setting, positions: torch.Tensor, rates: dict[int, tuple[float, float]]
) -> float:
    """Of one layer, forward and backward."""
    shape, rows = setting.shape, positions.numpy()
    document = (rows == 0).cumsum(1)
    first, last = document[:, ::BLOCK], document[:, BLOCK - 1 :: BLOCK]
    visited = sum(
        int((last[:, : q + 1] >= first[:, q : q + 1]).sum()) for q in range(first.shape[1])
    )
    products = 4 * visited * BLOCK**2 * shape.head_dim * shape.heads
    forward, backward = rates[shape.head_dim]
    return products / forward + 2.5 * products / backward


def automatic(setting: Setting) -> Form:
    shape, tokens = setting.shape, setting.batch * setting.length
    counts = count(shape, VARIANTS["mixit"], form="generated")
    taken = memory_per_rank(counts, ranks=8, dtype="bfloat16").total
    taken += tokens * shape.layers * 2 * (8 * shape.width + 4 * shape.hidden)
    taken += tokens * shape.vocab * 6 // 8
    return choose_form("auto", shape, "bfloat16", room=room_for_matrices(80 * 10**9 - taken))


def model_rows(setting: Setting, kernels: dict[tuple[str, int, bool], sass.Kernel]) -> list[dict]:
    """Each form's step, the one that `auto` takes first."""
    shape, tokens = setting.shape, setting.batch * setting.length
    positions = stream(setting.batch, setting.length)
    products = shape.layers * setting.length * shape.width
    outside = {
        name: (count(shape, VARIANTS[name]).flops_per_token - factor * products)
        * tokens
        / (SHARE * PEAK)
        for name, factor in (("standard", 6), ("mixit", 2))
    }
    attention, flash = (
        shape.layers * attention_seconds(setting, positions, rates) for rates in (FLEX, FLASH)
    )
    standard, auto, rows = outside["standard"] + attention, automatic(setting), []
    for source, form, noise in (
        ("stored", "stored", "any"),
        ("normals", "generated", "gaussian"),
        ("signs", "generated", "sign"),
    ):
        taken = [
            product_seconds(
                kernels[source, shape.head_dim, transposed], source, setting, positions, transposed
            )
            for transposed in (False, True)
        ]
        mixing = {name: shape.layers * sum(product[name] for product in taken) for name in taken[0]}
        ratio = {name: standard / (outside["mixit"] + mixing[name]) for name in mixing}
        rows.append(
            {
                "flavor": setting.flavor,
                "length": setting.length,
                "batch": setting.batch,
                "form": form,
                "noise": noise,
                "auto": form == auto and noise != "sign",
                "ratio_to_standard": round(ratio["in turn"], 3),
                "ratio_if_overlapped": round(ratio["overlapped"], 3),
                "ratio_to_flash": round(
                    (outside["standard"] + flash) / (outside["mixit"] + mixing["in turn"]), 3
                ),
                "bar": setting.bar,
                "standard_ms": round(1e3 * standard, 1),
                "attention_ms": round(1e3 * attention, 1),
                "mixing_ms": round(1e3 * mixing["in turn"], 1),
                "ratio_without_mixing": round(standard / outside["mixit"], 3),
                "stored_gb": round(
                    shape.layers * shape.heads * packed_bytes(setting.length, 2) / 1e9, 1
                ),
            }
        )
    return sorted(rows, key=lambda row: not row["auto"])


def main(args: Arguments) -> None:
    make_folder(args.out)
    kernels = {
        (source, width, transposed): sass.mixing_kernel(
            "stored" if source == "stored" else "drawn",
            width,
            transposed=transposed,
            signs=source == "signs",
        )
        for source in ("stored", "normals", "signs")
        for width in (64, 128)
        for transposed in (False, True)
    }
    models = [row for setting in SETTINGS for row in model_rows(setting, kernels)]
    found: dict[str, Any] = {
        "assumed": ASSUMED,
        "kernels": [asdict(kernel) for kernel in kernels.values()],
        "models": models,
    }
    write_text(args.out / "h100.json", json.dumps(found, indent=1))
    for title, rows in (("Kernels", found["kernels"]), ("Models", models)):
        print(f"{title} (modelled, see `assumed` in {args.out / 'h100.json'})\n")
        cells = [["" if cell is None else cell for cell in row.values()] for row in rows]
        print(markdown_table(list(rows[0]), cells, left=2), "\n")
    for row in models:
        if row["auto"] and row["bar"]:
            verdict = "reached" if row["ratio_to_standard"] >= row["bar"] else "missed"
            print(
                f"{row['flavor']} at {row['length']}: {row['ratio_to_standard']} of standard, "
                f"bar {row['bar']} {verdict}"
            )


if __name__ == "__main__":
    main(tyro.cli(Arguments))

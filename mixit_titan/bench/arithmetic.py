"""What follows from the models alone: FLOP ratios on a known GPU, and the bytes that FSDP2 moves in
a step. Computed; nothing here is measured."""

import math
from collections.abc import Sequence
from typing import Any

from torchtitan.tools import utils

import mixit_titan.device  # noqa: F401  (torchtitan's table of peaks, without its guess)
from mixit_titan.bench.settings import Point
from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import count, weights
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.storage import DTYPE_BYTES
from mixit_titan.model.variants import VARIANTS, Variant
from mixit_titan.tables import markdown_table

LENGTHS = tuple(2**n for n in range(8, 16))
SHIPPED = ("paper", "160m", "410m", "1b", "3b", "8b")
"""The flavours that there are training configs for, beside the debug one."""


def limits(device: str, flavors: Sequence[str] = SHIPPED) -> dict[str, Any]:
    """Of each flavour and length: tokens/s of `standard` at the device's peak, the limit of each
    variant over it, and the size of the mixing matrices in bfloat16 if they are kept."""
    peak = utils.get_peak_flops(device)
    if math.isnan(peak):
        raise ConfigError(
            f"--limits names {device!r}, whose peak nobody has told torchtitan: try H100 or A100"
        )
    rows = [row for flavor in flavors for row in _rows(flavor, peak)]
    return {"computed": True, "measured": False, "device": device, "peak_flops": peak, "rows": rows}


def _rows(flavor: str, peak: float) -> list[dict[str, Any]]:
    shape, rows = FLAVORS[flavor], []
    for length in LENGTHS:
        flops = {
            name: count(shape, variant, seq_len=length).flops_per_token
            for name, variant in VARIANTS.items()
        }
        elements = shape.layers * shape.heads * length**2
        rows.append(
            {
                "flavor": flavor,
                "seq_len": length,
                "standard_tokens_per_s_at_peak": peak / flops["standard"],
                "limit": {v: flops["standard"] / f for v, f in flops.items() if v != "standard"},
                "mixing_matrices_bytes": DTYPE_BYTES["bfloat16"] * elements,
            }
        )
    return rows


COLUMNS = (
    "flavor",
    "length",
    "standard tokens/s at peak",
    *(name for name in VARIANTS if name != "standard"),
    "mixing matrices",
)


def limits_markdown(found: dict[str, Any]) -> str:
    """Computed, and it says so."""
    heading = (
        f"Computed, not measured: one {found['device']} at its peak of "
        f"{found['peak_flops'] / 1e12:,.0f} TFLOPS in bfloat16."
    )
    rows = [
        (
            row["flavor"],
            row["seq_len"],
            f"{row['standard_tokens_per_s_at_peak']:,.0f}",
            *(f"{limit:.3f}x" for limit in row["limit"].values()),
            f"{row['mixing_matrices_bytes'] / 2**30:,.2f} GiB",
        )
        for row in found["rows"]
    ]
    return f"{heading}\n\n{markdown_table(COLUMNS, rows, left=1)}"


_GRADIENT_BYTES = 4
"""Gradients are reduced in float32."""


def bytes_per_step(variant: Variant, point: Point, ranks: int) -> dict[str, int]:
    """What one rank receives from the others: `weights`, `gradients`, and their sum `total`.

    Of each weight it lacks (N-1)/N: once for the forward pass, and once more for the backward pass
    unless the weight was kept. And of the gradient of its own shard it receives the others' parts,
    (N-1)/N of the gradients of what is trained. Frozen weights that are resident do not move at
    all. A mixing matrix is no weight: each rank has its own.
    """
    gathered = gradients = 0
    for weight in weights(point.shape, variant):
        trained = weight.part not in variant.frozen
        if trained or point.frozen == "sharded":
            size = weight.elements * DTYPE_BYTES[point.dtype]
            gathered += size * _gathers(weight.name, tied=point.shape.tied)
        if trained:
            gradients += weight.elements * _GRADIENT_BYTES
    gathered, gradients = (size * (ranks - 1) // ranks for size in (gathered, gradients))
    return {"weights": gathered, "gradients": gradients, "total": gathered + gradients}


def _gathers(name: str, *, tied: bool) -> int:
    """How often torchtitan's wrapping gathers a parameter in a step. What comes last in the forward
    pass comes first in the backward pass, and is kept; a tied embedding is one group with it."""
    kept = name.startswith(("norm.", "lm_head."))
    return 1 if kept or (tied and name.startswith("tok_embeddings.")) else 2

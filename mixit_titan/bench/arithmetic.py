"""FLOP ratios on a known GPU, computed from the models alone; nothing here is measured."""

import logging
import math
from collections.abc import Sequence
from typing import Any

from torchtitan.tools import utils

import mixit_titan.device  # noqa: F401  (torchtitan's table of peaks, without its guess)
from mixit_titan.errors import ConfigError
from mixit_titan.kernels.forms import packed_bytes
from mixit_titan.model.accounting import count
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.storage import DTYPE_BYTES
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tables import markdown_table

LENGTHS = tuple(2**n for n in range(8, 16))
SHIPPED = ("paper", "160m", "410m", "1b", "3b", "8b")
"""The flavors with training configs, not counting debug."""


def limits(device: str, flavors: Sequence[str] = SHIPPED) -> dict[str, Any]:
    """Compute, for each flavor and length, tokens/s of `standard` at the device's peak, the FLOP
    ratio of each variant (under the key `limit`), and the size of stored mixing matrices in
    bfloat16."""
    peak = _peak_flops(device)
    if math.isnan(peak):
        raise ConfigError(
            f"--limits names {device!r}, whose peak torchtitan does not know: try H100 or A100"
        )
    rows = [row for flavor in flavors for row in _rows(flavor, peak)]
    return {"computed": True, "measured": False, "device": device, "peak_flops": peak, "rows": rows}


def _peak_flops(device: str) -> float:
    """Ask torchtitan, without its warning where there is no lspci to tell one H100 from another."""
    logging.disable(logging.WARNING)
    try:
        return utils.get_peak_flops(device)
    finally:
        logging.disable(logging.NOTSET)


def _rows(flavor: str, peak: float) -> list[dict[str, Any]]:
    shape, rows = FLAVORS[flavor], []
    for length in LENGTHS:
        flops = {
            name: count(shape, variant, seq_len=length).flops_per_token
            for name, variant in VARIANTS.items()
        }
        size = packed_bytes(length, DTYPE_BYTES["bfloat16"])
        rows.append(
            {
                "flavor": flavor,
                "seq_len": length,
                "standard_tokens_per_s_at_peak": peak / flops["standard"],
                "limit": {v: flops["standard"] / f for v, f in flops.items() if v != "standard"},
                "mixing_matrices_bytes": shape.layers * shape.heads * size,
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
    """Render the FLOP ratios as Markdown, with a heading that says they are computed."""
    heading = (
        f"FLOP ratios to standard, computed and not measured, for one {found['device']} "
        f"at its peak of {found['peak_flops'] / 1e12:,.0f} TFLOPS in bfloat16."
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

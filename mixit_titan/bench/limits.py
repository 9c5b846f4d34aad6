"""What the arithmetic allows on a known GPU: computed from the models, nothing is measured."""

import math
from collections.abc import Sequence
from typing import Any

from torchtitan.tools import utils

from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import count, meta_model
from mixit_titan.model.build import llama_config
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.variants import VARIANTS

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
    configs = [llama_config(FLAVORS[flavor], v, attention="sdpa") for v in VARIANTS.values()]
    models = [(config, meta_model(config)) for config in configs]
    rows = []
    for length in LENGTHS:
        counts = [count(config, model, length) for config, model in models]
        flops = dict(zip(VARIANTS, (c.flops_per_token for c in counts), strict=True))
        elements = max(c.mixing_elements for c in counts)  # at the flavour's own length
        rows.append(
            {
                "flavor": flavor,
                "seq_len": length,
                "standard_tokens_per_s_at_peak": peak / flops["standard"],
                "limit": {v: flops["standard"] / f for v, f in flops.items() if v != "standard"},
                "mixing_matrices_bytes": 2 * elements * length**2 // FLAVORS[flavor].seq_len ** 2,
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
    lines = [
        f"Computed, not measured: one {found['device']} at its peak of "
        f"{found['peak_flops'] / 1e12:,.0f} TFLOPS in bfloat16.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" + "|---:" * (len(COLUMNS) - 1) + "|",
    ]
    for row in found["rows"]:
        cells = [
            row["flavor"],
            f"{row['seq_len']}",
            f"{row['standard_tokens_per_s_at_peak']:,.0f}",
            *(f"{limit:.3f}x" for limit in row["limit"].values()),
            f"{row['mixing_matrices_bytes'] / 2**30:,.2f} GiB",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"

"""How fast MixiT would train on an H100 compared to standard: modeled, because there is none here.

    python benchmarks/h100.py --out runs/h100

The model is that of `mixit-titan params` (model/speed.py, model/mixing_speed.py): a step of the
shipped configs on 8 GPUs, with packed documents. The instruction counts that it assumes for the
kernels (kernels/tiles.py) are compared to what Triton compiles. Prints two tables and writes
DIR/h100.json: `kernels`, as benchmarks/sass.py reads them off their machine code, `models`, a step
of training with each form of mixing, `row_means_seconds`, which the generated form takes once when
a model with long rows starts, and `assumed`. Trust ratios, not milliseconds.
"""

import dataclasses
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sass
import tyro

from mixit_titan.config.estimate import Estimate
from mixit_titan.config.shipped_estimates import shipped_estimate
from mixit_titan.errors import RunFailed
from mixit_titan.files import make_folder, write_text
from mixit_titan.kernels.tiles import COSTS
from mixit_titan.model.hardware import GPUS
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.tables import markdown_table

GPU, RANKS = "H100", 8
SHIPPED = 2048
"""Tokens of a row in the shipped configs."""
LONG = 131072
"""Tokens of a row whose means are timed."""
AGREE = 0.03
"""How much an instruction count of kernels/tiles.py may differ from what Triton compiles now."""


@dataclass
class Arguments:
    """Model a step of training on an H100 from the machine code of the kernels."""

    out: Path


@dataclass(frozen=True)
class Setting:
    """One model at one length."""

    flavor: str
    length: int
    bar: float | None = None
    """The value that ratio_to_standard should reach."""

    def estimate(self, variant: str, *overrides: str) -> Estimate:
        """The estimate of the shipped config; a longer row replaces several."""
        name = f"{self.flavor}_fineweb_edu"
        if self.length != SHIPPED:
            shipped, fewer = self._shipped(name, variant), self.length // SHIPPED
            overrides += (
                f"--model.seq_len={self.length}",
                f"--training.local_batch_size={shipped.local_batch_size // fewer}",
                f"--training.global_batch_size={shipped.global_batch_size // fewer}",
            )
        return self._shipped(name, variant, *overrides)

    def _shipped(self, name: str, variant: str, *overrides: str) -> Estimate:
        return shipped_estimate(name, variant, *overrides, ranks=RANKS, gpu=GPU)


SETTINGS = (
    Setting("160m", 2048, bar=1.10),
    Setting("160m", 8192, bar=1.10),
    Setting("1b", 2048, bar=1.05),
    Setting("1b", 8192),
    Setting("8b", 2048, bar=1.05),
    Setting("8b", 8192),
)
FORMS = (("stored", "gaussian"), ("generated", "gaussian"), ("generated", "sign"))


def compiled_kernels() -> list[sass.Kernel]:
    """Of each source, forward and transposed. Refuses counts that the model does not know."""
    found = []
    for (source, transposed), cost in COSTS.items():
        for width in (64, 128):
            kernel = sass.mixing_kernel(source, width, transposed=transposed)
            counted = (
                kernel.instructions_per_element,
                kernel.edge_instructions_per_element,
                kernel.instructions_per_group,
            )
            for known, now in zip(dataclasses.astuple(cost), counted, strict=True):
                if abs(now - known) > AGREE * known:
                    raise RunFailed(
                        f"COSTS of kernels/tiles.py has {known} for {source}, {kernel.name}, and "
                        f"Triton compiles {now}: correct it, and the pages that quote the model"
                    )
            found.append(kernel)
    return found


def model_rows(setting: Setting) -> list[dict[str, Any]]:
    """Each form's step, the one that `auto` takes first."""
    flex = setting.estimate("standard").seconds
    flash = setting.estimate("standard", "--model.attention=varlen").seconds
    auto = setting.estimate("mixit").form
    rows = []
    for form, noise in FORMS:
        mixit = setting.estimate(
            "mixit", f"--model.mixing.storage={form}", f"--model.mixing.noise={noise}"
        )
        without = dataclasses.replace(mixit.seconds, mixers=0.0)
        rows.append(
            {
                "flavor": setting.flavor,
                "length": setting.length,
                "batch": mixit.local_batch_size,
                "form": form,
                "noise": noise,
                "auto": form == auto and noise == "gaussian",
                "ratio_to_standard": round(flex.total / mixit.seconds.total, 3),
                "ratio_to_flash": round(flash.total / mixit.seconds.total, 3),
                "ratio_without_mixing": round(flex.total / without.total, 3),
                "bar": setting.bar,
                "standard_ms": round(1e3 * flex.total, 1),
                "attention_ms": round(1e3 * flex.mixers, 1),
                "flash_ms": round(1e3 * flash.mixers, 1),
                "mixing_ms": round(1e3 * mixit.seconds.mixers, 1),
                "matrices_gb": round(mixit.memory.mixing / 1e9, 1),
            }
        )
    return sorted(rows, key=lambda row: not row["auto"])


def row_means_seconds() -> dict[str, float]:
    """By each noise, for all matrices of 8b at length LONG."""
    shape = FLAVORS["8b"]
    drawn = shape.layers * shape.heads * LONG**2 / 2
    found = {}
    for noise in ("gaussian", "sign"):
        kernel = sass.row_means_kernel(signs=noise == "sign")
        found[noise] = round(drawn * kernel.instructions_per_element / GPUS[GPU].lanes, 1)
    return found


def main(args: Arguments) -> None:
    """Model all settings, print the tables and write h100.json."""
    make_folder(args.out)
    kernels = [asdict(kernel) for kernel in compiled_kernels()]
    means = row_means_seconds()
    models = [row for setting in SETTINGS for row in model_rows(setting)]
    assumed = {
        f"{variant}, {setting.flavor}": setting.estimate(variant).assumptions
        for setting in SETTINGS
        for variant in ("standard", "mixit")
        if setting.length == SHIPPED
    }
    found = {"assumed": assumed, "kernels": kernels, "models": models, "row_means_seconds": means}
    write_text(args.out / "h100.json", json.dumps(found, indent=1))
    for title, rows in (("Kernels", kernels), ("Models", models)):
        print(f"{title} (modeled, see `assumed` in {args.out / 'h100.json'})\n")
        cells = [["" if cell is None else cell for cell in row.values()] for row in rows]
        print(markdown_table(list(rows[0]), cells, left=2), "\n")
    print(f"The row means of 8b at {LONG} take {means['gaussian']} s, with signs {means['sign']} s")
    for row in models:
        if row["auto"] and row["bar"]:
            verdicts = (
                f"{row[key]} of standard with {attention} attention, bar {row['bar']} "
                + ("reached" if row[key] >= row["bar"] else "missed")
                for key, attention in (("ratio_to_standard", "flex"), ("ratio_to_flash", "flash"))
            )
            print(f"{row['flavor']} at {row['length']}: {'; '.join(verdicts)}")


if __name__ == "__main__":
    main(tyro.cli(Arguments))

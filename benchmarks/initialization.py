"""How large the weights of a frozen part should start: small language models over their scale.

    python benchmarks/initialization.py --out runs/initialization

Each series is one variant and the part whose initial size changes; the rest is the default. A scale
of a linear is a multiple of 1/sqrt(inputs), that of MixiT's matrices the norm of a row of W
(std * sqrt(length)). `authors`: all weights and embeddings at 0.02. All models read the same bytes
of the standard library's sources, in the same order for a seed, with the same schedule. Their loss
is that on the last part of the training split, which none of them trains on: the validation split,
by which the demo is judged, is not used.

Finished points are kept in OUT/initialization.json, and the same command resumes.
"""

import itertools
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from matplotlib.figure import Figure

from mixit_titan.data.prepared import prepared_data
from mixit_titan.data.shards import open_split
from mixit_titan.files import write_json
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.plotting import COLORS, save_figure
from mixit_titan.tables import markdown_table

AUTHORS = "authors"
LENGTH, ROWS, LAYERS, HEADS, VOCAB, LR = 128, 8, 2, 4, 256, 2e-3
HELD_OUT_ROWS = 96


@dataclass(frozen=True)
class Series:
    """One variant, and the part whose initial size is varied."""

    variant: str
    parts: tuple[str, ...]
    """The parts that are scaled; none: the mixing matrices."""
    scales: tuple[float, ...]

    @property
    def all_scales(self) -> tuple[float | str, ...]:
        """The scales to try. Series of embeddings are compared with the other series, where
        embeddings are 1 or 0.02."""
        return self.scales if self.parts == ("embedding",) else (AUTHORS, *self.scales)

    @property
    def title(self) -> str:
        """The name of the series."""
        return f"{self.variant}: {', '.join(self.parts) or 'mixing'}"


_ALL = ("qk", "v", "o", "mlp")
SERIES = (
    Series("frozen_qk", ("qk",), (0.6, 1.0, 1.6, 2.5)),
    Series("mixit", (), (0.1, 0.3, 1.0)),
    Series("standard", ("qk",), (1.0, 1.6)),
    Series("frozen_mlp", ("mlp",), (0.1, 0.3, 0.6, 1.0, 1.6)),
    Series("random", _ALL, (0.1, 0.3, 0.6, 1.0, 1.6)),
    *(Series(variant, ("embedding",), (0.1, 0.3)) for variant in VARIANTS),
)


@dataclass(frozen=True)
class Point:
    """One model to train."""

    series: str
    width: int
    scale: float | str
    seed: int


@dataclass
class Arguments:
    """Train small models over the initial scale of frozen parts."""

    out: Path = Path("runs/initialization")
    widths: tuple[int, ...] = (32, 64, 128)
    steps: int = 300
    seeds: tuple[int, ...] = (0, 1)
    series: tuple[str, ...] = tuple(series.title for series in SERIES)
    """The series to run."""


class Text:
    """Rows of bytes: those to train on, and those to choose by."""

    def __init__(self) -> None:
        folder, _ = prepared_data("stdlib", None, vocab=VOCAB)
        split = open_split(folder, "train")
        tokens = np.asarray(split.read(0, split.tokens)).astype(np.int64)
        rows = tokens[: len(tokens) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
        cut = len(rows) - len(rows) // 20
        held_out = np.linspace(cut, len(rows) - 1, HELD_OUT_ROWS).astype(int)
        self.rows, self.held_out = torch.from_numpy(rows[:cut]), torch.from_numpy(rows[held_out])
        self.vocab = int(tokens.max()) + 1


def build(series: Series, point: Point, vocab: int) -> MixitLlama:
    """The model of a point, with its initial weights scaled."""
    stds, recipe = {}, Recipe()
    if point.scale == AUTHORS:
        stds = {"init_std": 0.02, "embedding_std": 0.02}
    elif series.parts == ("embedding",):
        stds = {"embedding_std": point.scale}
    elif series.parts:
        stds = {"init_std": {part: f"{point.scale} fan_in" for part in series.parts}}
    else:
        recipe = Recipe(std=point.scale / math.sqrt(LENGTH))
    width, variant = point.width, VARIANTS[series.variant]
    sizes = {"width": width, "hidden": 4 * width, "vocab": vocab, "seq_len": LENGTH}
    shape = Shape(**sizes, layers=LAYERS, heads=HEADS, **stds)
    seeds = {"init_seed": point.seed, "mixing_seed": point.seed}
    model = llama_config(shape, variant, recipe, **seeds, attention="sdpa").build()
    model.init_states()
    freeze(model, variant)
    return model


def loss(model: MixitLlama, rows: torch.Tensor) -> torch.Tensor:
    """The mean loss of next tokens."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def train(series: Series, point: Point, text: Text, steps: int) -> float:
    """The loss on the held-out rows."""
    model = build(series, point, text.vocab)
    trained = [param for param in model.parameters() if param.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    order = torch.Generator().manual_seed(point.seed)
    for step in range(steps):
        chosen = torch.randint(len(text.rows), (ROWS,), generator=order)
        rise, fall = (step + 1) / (steps // 10), (steps - step) / (steps - steps // 10)
        optimizer.param_groups[0]["lr"] = LR * min(rise, fall, 1.0)
        loss(model, text.rows[chosen]).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        parts = text.held_out.split(16)
        return statistics.mean(loss(model, part).item() for part in parts)


def points(args: Arguments) -> Iterator[tuple[Series, Point]]:
    """The quick ones first."""
    for seed, width in itertools.product(args.seeds, args.widths):
        for series in SERIES:
            if series.title in args.series:
                for scale in series.all_scales:
                    yield series, Point(series.title, width, scale, seed)


def main(args: Arguments) -> None:
    """Train all points that are not done, print the table and draw the figure."""
    file, text = args.out / "initialization.json", Text()
    done = json.loads(file.read_text())["points"] if file.exists() else []
    known = [{key: value for key, value in point.items() if key != "loss"} for point in done]
    for series, point in points(args):
        described = asdict(point) | {"steps": args.steps}
        if described in known:
            continue
        found = train(series, point, text, args.steps)
        where = f"width {point.width}, scale {point.scale}, seed {point.seed}"
        print(f"{series.title}, {where}: {found:.3f}", flush=True)
        done.append(described | {"loss": found})
        write_json(file, {"points": done})
    means = averaged([point for point in done if point["steps"] == args.steps])
    print(table(means, args.widths))
    plot(means, args.widths, args.out / "initialization.png")


Means = dict[tuple[str, int], dict[float | str, float]]
"""Series and width -> scale -> loss."""


def averaged(done: list[dict[str, Any]]) -> Means:
    """Over the seeds."""
    found: dict[tuple[str, int], dict[float | str, list[float]]] = {}
    for point in done:
        scales = found.setdefault((point["series"], point["width"]), {})
        scales.setdefault(point["scale"], []).append(point["loss"])
    return {
        key: {scale: statistics.mean(losses) for scale, losses in scales.items()}
        for key, scales in found.items()
    }


def table(means: Means, widths: tuple[int, ...]) -> str:
    """A row for each series and scale; the lowest loss of a series at a width is bold."""
    rows = []
    for series in SERIES:
        for scale in series.all_scales:
            cells = []
            for width in widths:
                scales = means.get((series.title, width), {})
                text = f"{scales[scale]:.3f}" if scale in scales else ""
                best = text and scales[scale] == min(scales.values())
                cells.append(f"**{text}**" if best else text)
            if any(cells):
                rows.append((series.title, str(scale), *cells))
    return markdown_table(("series", "scale", *(f"width {w}" for w in widths)), rows, left=2)


def plot(means: Means, widths: tuple[int, ...], path: Path) -> None:
    """Draw the losses over the scale, one panel per width."""
    drawn = [s for s in SERIES if s.variant != "standard" and s.parts != ("embedding",)]
    widths = tuple(width for width in widths if any(at == width for _, at in means))
    figure = Figure(figsize=(2.7 * len(drawn), 3.4), layout="constrained")
    for axes, series in zip(figure.subplots(1, len(drawn)), drawn, strict=True):
        found: set[float] = set()
        for number, width in enumerate(widths):
            scales = means.get((series.title, width), {})
            line = sorted((x, y) for x, y in scales.items() if x != AUTHORS)
            if not line:
                continue
            found |= {scale for scale, _ in line}
            shade = {"color": COLORS[series.variant], "alpha": (number + 1) / len(widths)}
            axes.plot(*zip(*line, strict=True), marker="o", label=f"width {width}", **shade)
            if AUTHORS in scales:
                axes.axhline(scales[AUTHORS], linestyle=":", linewidth=1, **shade)
        axes.set_xscale("log")
        axes.set_xticks(sorted(found), [f"{scale:g}" for scale in sorted(found)], minor=False)
        axes.minorticks_off()
        axes.set_xlabel("std * sqrt(length)" if not series.parts else "std * sqrt(inputs)")
        axes.set_title(f"{series.variant}: {', '.join(series.parts) or 'mixing'}", fontsize=10)
        axes.grid(alpha=0.3)
        axes.legend(
            fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False, ncols=2
        )
    figure.axes[0].set_ylabel("held-out loss (nats per byte)")
    figure.suptitle("dotted: all weights and embeddings at 0.02", fontsize=9)
    save_figure(figure, path)


if __name__ == "__main__":
    main(tyro.cli(Arguments))

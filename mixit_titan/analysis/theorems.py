"""The kinds of `mixit-titan analyze` that test a theorem without a run, and their tables."""

from pathlib import Path
from typing import Any

from rich.table import Table

from mixit_titan.analysis.expressivity import expressivity
from mixit_titan.analysis.expressivity_figure import draw_expressivity
from mixit_titan.analysis.sde import TOKENS, sde
from mixit_titan.analysis.sde_figure import draw_sde
from mixit_titan.errors import ConfigError
from mixit_titan.tables import screen_table

WIDTHS, RATIO, PATHS = (8, 16, 32, 64, 128), 0.25, 20_000
HEADS, SEEDS = (1, 4, 16, 64), 3


def analyze_sde(
    path: Path, *, widths: tuple[int, ...] | None, ratio: float | None, paths: int | None
) -> tuple[dict[str, Any], Table]:
    """Test Theorem 2.1 and draw the result to `path`; None stands for a default."""
    widths = WIDTHS if widths is None else tuple(sorted(set(widths)))
    ratio = RATIO if ratio is None else ratio
    paths = PATHS if paths is None else paths
    if not widths or widths[0] < 2 * TOKENS:
        raise ConfigError(f"--widths is {widths}: give one or more, each at least {2 * TOKENS}")
    for width in widths:
        if not ratio > 0 or abs(ratio * width - round(ratio * width)) > 1e-9:
            raise ConfigError(
                f"--ratio is {ratio:g}: depth = ratio * width must be a positive integer, and is "
                f"{ratio * width:g} at width {width}"
            )
    found = sde(widths=widths, ratio=ratio, paths=paths)
    draw_sde(found, path)
    return found, _sde_table(found)


def _sde_table(found: dict[str, Any]) -> Table:
    ranks = {
        (row["mixer"], row["width"]): f"{row['effective_rank']:.2f}"
        for row in found["collapse"]["rows"]
        if row["layer"] == round(found["ratio"] * row["width"])
    }
    rows = []
    for recursion in found["recursions"]:
        name = recursion["recursion"]
        for row in recursion["rows"]:
            width = row["width"]
            # The effective rank is measured for the causal recursion alone.
            own = [ranks[mixer, width] for mixer in ("mixit", "softmax") if name == "causal"]
            rows.append([name, width, *_differences(row), *own])
        rows.append(["  SDE", "", *_differences(recursion["euler_maruyama"])])
        slopes = ("" if slope is None else f"{slope:.2f}" for slope in recursion["slopes"].values())
        rows.append(["  slope", "", "", next(slopes), "", next(slopes)])
    title = (
        f"Relative distance from the SDE in %, at depth = {found['ratio']:g} width, simulated with "
        f"{found['paths']:,} paths and exact; effective rank of {found['collapse']['tokens']} "
        "tokens under MixiT and softmax attention"
    )
    header = ["recursion", "width", "means", "exact", "covariance", "exact", "MixiT", "softmax"]
    return screen_table(title, header, rows)


def _differences(row: dict[str, Any]) -> list[str]:
    """The cells of means and of covariances: simulated, then exact."""
    cells = []
    for what in ("mean", "covariance"):
        cells.append(f"{100 * row[f'{what}_difference']:.1f}±{100 * row[f'{what}_error']:.1f}")
        exact = row.get(f"{what}_difference_exact")
        cells.append("" if exact is None else f"{100 * exact:.3f}")
    return cells


def analyze_expressivity(
    path: Path, *, heads: tuple[int, ...] | None, seeds: int | None
) -> tuple[dict[str, Any], Table]:
    """Test Theorem 5.1 and draw the result to `path`; None stands for a default."""
    heads = HEADS if heads is None else tuple(sorted(set(heads)))
    seeds = SEEDS if seeds is None else seeds
    found = expressivity(heads=heads, seeds=seeds)
    draw_expressivity(found, path)
    rows = [
        [
            row["target"],
            row["layer"],
            row["heads"] or "",
            f"{row['mean']:.4f}",
            f"{min(row['errors']):.4f} to {max(row['errors']):.4f}",
        ]
        for row in found["rows"]
    ]
    title = f"One layer fitted to a causal function: error as a share of variance, {seeds} seeds"
    return found, screen_table(title, ["target", "layer", "heads", "mean", "range"], rows, left=2)

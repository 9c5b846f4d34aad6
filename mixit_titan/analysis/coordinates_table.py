"""The defaults and the tables of `mixit-titan analyze coordinates`."""

from pathlib import Path
from typing import Any

from rich.console import Group

from mixit_titan.analysis.coordinate_models import HEAD_WIDTH
from mixit_titan.analysis.coordinates import SIZES, coordinates
from mixit_titan.analysis.coordinates_figure import draw_coordinates
from mixit_titan.analysis.rate_transfer import rate_transfer
from mixit_titan.errors import ConfigError
from mixit_titan.tables import screen_table

WIDTHS, DEPTHS, STEPS, SWEEP_STEPS = (32, 64, 128, 256), (2, 4, 8), 10, 80
_SWEPT = 3
"""The learning rate sweep takes only the smallest widths, so that it finishes in minutes."""
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)


def analyze_coordinates(
    path: Path,
    *,
    widths: tuple[int, ...] | None,
    depths: tuple[int, ...] | None,
    rates: tuple[float, ...] | None,
    steps: int | None,
) -> tuple[dict[str, Any], Group]:
    """Run the coordinate check and the learning rate sweep, and draw both to `path`. None stands
    for a default; `steps` is the length of the sweep's runs."""
    widths = tuple(sorted(set(widths or WIDTHS)))
    depths = tuple(sorted(set(depths or DEPTHS)))
    rates = tuple(sorted(set(rates or RATES)))
    for width in widths:
        if width % HEAD_WIDTH:
            raise ConfigError(
                f"--widths has {width}: it must be a multiple of {HEAD_WIDTH}, the width of a head"
            )
    if len(widths) < 2 or len(rates) < 3:
        raise ConfigError("coordinates needs at least two --widths and three --rates")
    found = {
        "sizes": coordinates(widths=widths, depths=depths, steps=STEPS),
        "rates": rate_transfer(widths=widths[:_SWEPT], rates=rates, steps=steps or SWEEP_STEPS),
    }
    draw_coordinates(found, path)
    return found, Group(
        _slopes(found["sizes"], "width"), _slopes(found["sizes"], "depth"), _best(found["rates"])
    )


def _slopes(sizes: dict[str, Any], over: str) -> Any:
    rows = [
        [family["family"], *(_shown(family["slopes"][over][size]) for size in SIZES)]
        for family in sizes["families"]
    ]
    title = (
        f"Slope of log RMS over log {over}: at initialization, after {sizes['steps']} steps of "
        f"AdamW at learning rate {sizes['rate']:g}, and of the change between the two"
    )
    header = ["model", "state", "logits", "state after", "logits after", "state change"]
    header.append("logits change")
    return screen_table(title, header, rows)


def _best(rates: dict[str, Any]) -> Any:
    widths = [row["width"] for row in rates["families"][0]["rows"]]
    rows = []
    for family in rates["families"]:
        cells = [
            f"{row['rate']:.1e}{' (edge)' if row['at_edge'] else ''}: {row['loss']:.3f}"
            for row in family["rows"]
        ]
        rows.append([family["family"], *cells, _shown(family["slope"])])
    header = ["model", *(f"width {width}" for width in widths), "slope"]
    title = (
        f"Best learning rate and its loss after {rates['steps']} steps; slope of log rate over log "
        "width; edge: at an end of the grid"
    )
    return screen_table(title, header, rows)


def _shown(slope: float | None) -> str:
    return "-" if slope is None else f"{slope:+.2f}"

"""Two bench.json files side by side: has a ratio fallen?"""

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from mixit_titan.bench.report import path_words
from mixit_titan.errors import ConfigError
from mixit_titan.tables import screen_table

_STANDARD = "standard / plain"
"""The row of `standard` itself, if both files have measured the plain Llama."""


def compare(before: Path, after: Path, tolerance: float) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each variant that both files have at the same settings, and the names of those
    whose ratio fell by more than `tolerance` percent."""
    if tolerance < 0:
        raise ConfigError(f"--tolerance is {tolerance}: it must be at least 0 percent")
    old, new = read_ratios(before), read_ratios(after)
    if not old.keys() & new.keys():
        raise ConfigError(
            f"{before} and {after} share no variant at the same settings: "
            "compare two runs of the same command"
        )
    rows = []
    for key in old:
        if key in new:
            point, variant = key
            change = 100 * (new[key]["ratio"] / old[key]["ratio"] - 1)
            rows.append(
                {
                    "point": point,
                    "variant": variant,
                    "before": old[key],
                    "after": new[key],
                    "change_percent": change,
                    "regression": change < -tolerance,
                }
            )
    return rows, [f"{row['variant']} ({row['point']})" for row in rows if row["regression"]]


def only_in(path: Path, other: Path) -> list[tuple[str, str]]:
    """Settings and variant of what has no partner in the other file."""
    there = read_ratios(other)
    return [key for key in read_ratios(path) if key not in there]


def measured_otherwise(path: Path) -> bool:
    """Whether a bench.json is of a version that did not measure the trainer's steps, but those of a
    loop of its own: without its FSDP2 on one rank, its documents, CUDA graphs and chunks."""
    found = json.loads(path.read_text())
    return not all(point.get("measured") for point in found.get("points", [found]))


def read_ratios(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(settings, variant) -> its row, of a bench.json of one point or of a scan."""
    try:
        found = json.loads(path.read_text())
        points = found.get("points", [found])
        ratios = {}
        for point in points:
            name = _settings_text(point["settings"])
            for row in point["variants"]:
                # A plain Llama is no variant of ours: if it gains, `standard` has lost.
                if row["variant"] not in ("standard", "plain"):
                    ratios[name, row["variant"]] = {
                        "ratio": float(row["ratio"]),
                        "tokens_per_s": float(row["tokens_per_s"]),
                    }
            if "standard_to_plain" in point:
                ratios[name, _STANDARD] = {
                    "ratio": float(point["standard_to_plain"]["ratio"]),
                    "tokens_per_s": float(point["variants"][0]["tokens_per_s"]),
                }
        if any(row["ratio"] <= 0 for row in ratios.values()):
            raise ValueError("a ratio that is not positive")
    except OSError as error:
        raise ConfigError(f"there is no file {str(path)!r} to compare") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ConfigError(f"{path} is no bench.json: measure again with mixit-titan bench") from (
            error
        )
    return ratios


def _settings_text(settings: dict[str, Any]) -> str:
    """Everything that must be the same for two ratios to be compared; not the number of rounds."""
    shape = settings["shape"]
    sizes = f"{shape['width']}x{shape['layers']}x{shape['heads']}x{shape['hidden']}"
    length = settings.get("seq_len", shape["seq_len"])
    return (
        f"{sizes}, vocabulary {shape['vocab']}, length {length}, batch {settings['batch']}, "
        f"{', '.join(path_words(settings))}"
    )


def comparison_table(rows: list[dict[str, Any]], before: Path, after: Path) -> Table:
    header = ("settings", "variant", "tokens/s", "then", "to standard", "then", "change", "")
    cells = [
        (
            row["point"],
            row["variant"],
            *(f"{row[when]['tokens_per_s']:,.0f}" for when in ("before", "after")),
            *(f"{row[when]['ratio']:.3f}x" for when in ("before", "after")),
            f"{row['change_percent']:+.1f}%",
            "slower" if row["regression"] else "",
        )
        for row in rows
    ]
    return screen_table(f"{before} and then {after}", header, cells, left=2)

"""Compares two bench.json files: has a ratio fallen?"""

from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from mixit_titan.bench.form import COMPARED
from mixit_titan.bench.report import path_words
from mixit_titan.errors import ConfigError
from mixit_titan.json_form import WrongForm, check_form
from mixit_titan.reading import WrongFile, read_json
from mixit_titan.tables import screen_table

_AGAIN = "measure again with mixit-titan bench, and name the bench.json that it writes"
_FORM = {"points?": [dict]}
_STANDARD = "standard / plain"
"""The row of `standard` itself, if both files have measured the plain Llama."""


def compare(before: Path, after: Path, tolerance: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each variant that both files have at the same settings, and the names of
    those whose ratio fell by more than `tolerance` percent."""
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
    """Return the settings and variant of every row without a counterpart in the other file."""
    there = read_ratios(other)
    return [key for key in read_ratios(path) if key not in there]


def measured_otherwise(path: Path) -> bool:
    """Return whether a bench.json comes from a version that timed a loop of its own instead of the
    trainer's steps: without FSDP2 on one rank, documents, CUDA graphs and chunks."""
    found = read_json(path, _FORM, advice=_AGAIN)
    return not all(point.get("measured") for point in found.get("points", [found]))


def read_ratios(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Read (settings, variant) -> row from a bench.json of one point or of a scan."""
    try:
        found = read_json(path, _FORM, advice=_AGAIN)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {str(path)!r} to compare") from error
    ratios = {}
    for point in found.get("points", [found]):
        try:
            check_form(point, COMPARED)
        except WrongForm as wrong:
            raise WrongFile(path, str(wrong), _AGAIN) from None
        name = _settings_text(point["settings"])
        for row in point["variants"]:
            # A plain Llama is not one of our variants: if it gains, `standard` has lost.
            if row["variant"] not in ("standard", "plain"):
                ratios[name, row["variant"]] = _figures(row, row)
        if "standard_to_plain" in point and point["variants"]:
            ratios[name, _STANDARD] = _figures(point["standard_to_plain"], point["variants"][0])
    if any(row["ratio"] <= 0 for row in ratios.values()):
        raise WrongFile(path, "a ratio is not above 0", _AGAIN)
    return ratios


def _figures(of: dict[str, Any], measured: dict[str, Any]) -> dict[str, float]:
    return {"ratio": float(of["ratio"]), "tokens_per_s": float(measured["tokens_per_s"])}


def _settings_text(settings: dict[str, Any]) -> str:
    """Describe everything that must be the same for two ratios to be compared, which excludes the
    number of rounds."""
    shape = settings["shape"]
    sizes = f"{shape['width']}x{shape['layers']}x{shape['heads']}x{shape['hidden']}"
    length = settings.get("seq_len", shape["seq_len"])
    return (
        f"{sizes}, vocabulary {shape['vocab']}, length {length}, batch {settings['batch']}, "
        f"{', '.join(path_words(settings))}"
    )


def comparison_table(rows: list[dict[str, Any]], before: Path, after: Path) -> Table:
    """Return the table of `compare`'s rows. Settings are in its title if all rows have the same."""
    settings = {row["point"] for row in rows}
    each = len(settings) > 1
    header = ("variant", "tokens/s before", "after", "ratio before", "after", "change", "")
    cells = [
        (
            *([row["point"]] if each else []),
            row["variant"],
            *(f"{row[when]['tokens_per_s']:,.0f}" for when in ("before", "after")),
            *(f"{row[when]['ratio']:.3f}x" for when in ("before", "after")),
            f"{row['change_percent']:+.1f}%",
            "slower" if row["regression"] else "",
        )
        for row in rows
    ]
    title = "\n".join([f"before: {before}", f"after:  {after}", *(() if each else settings)])
    names = ("settings", *header) if each else header
    return screen_table(
        title, names, cells, left=2 if each else 1, title_justify="left", box=box.SIMPLE_HEAD
    )

"""Which settings a variant gets: chosen on validation, with seeds that are never reported.

`mixit-titan sweep TASK --choose` tries the same grid with the same budget for every variant and
writes `choice.json`. The choices behind the `cpu` presets are in `choices/`, one file per task, as
the command wrote them: what was chosen stands beside everything that was tried.
"""

import dataclasses
import functools
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixit_titan.json_form import COUNT, NUMBER
from mixit_titan.reading import read_json

if TYPE_CHECKING:
    from mixit_titan.tasks.settings import Run

FIRST_SEED = 10_000
"""Seeds from this one on are for choosing; smaller ones are for reporting."""
RULE = (
    "the highest mean accuracy on validation; of equal ones the lower mean loss; of those the first"
)
_VALUE = (NUMBER, bool, str, None, [(NUMBER, str)])
_TRIED = {
    **{"accuracy": float, "loss": NUMBER, "steps": float, "settings": {"*": _VALUE}},
    "seeds": [{"seed": COUNT, "accuracy": float, "loss": NUMBER, "steps": COUNT}],
}
FORM = {
    **{"task": str, "preset": str, "version": str, "rule": str, "held_out": str, "seeds": [COUNT]},
    "grid": {"*": [_VALUE]},
    "variants": {
        "*": {"chosen": {"*": _VALUE}, "settings": {"*": _VALUE}, "tried": [_TRIED]},
    },
}
_FOLDER = Path(__file__).parent / "choices"


@functools.cache
def choices() -> dict[str, dict[str, Any]]:
    """Return the choices that come with the package, by task."""
    return {file.stem: read_choice(file) for file in sorted(_FOLDER.glob("*.json"))}


def read_choice(file: Path) -> dict[str, Any]:
    """Read a choice that comes with the package."""
    return read_json(file, FORM, advice="install again")


def chosen_values(task: str, variant: str) -> dict[str, Any]:
    """Return what was chosen for a variant, or nothing if it had no part in the choice."""
    variants = choices().get(task, {}).get("variants", {})
    return variants.get(variant, {}).get("chosen", {})


def rank(place: Mapping[str, float]) -> tuple[float, float]:
    """Return the rank of a place in the grid from its mean accuracy and loss; the greatest is
    chosen (RULE)."""
    return place["accuracy"], -place["loss"]


def with_keys(run: "Run", keys: list[str]) -> dict[str, Any]:
    """Return the description of a run with all keys of the grid, including those left at their
    defaults."""
    plain = dataclasses.asdict(run.settings) | dataclasses.asdict(run.task)
    return run.described() | {key: plain[key] for key in keys}


def describe_choice(
    rows: list[dict[str, Any]], described: dict[str, dict[str, Any]], keys: list[str]
) -> dict[str, Any]:
    """Return the `variants` of choice.json. `rows` are the finished points of a sweep, `described`
    the settings of each by its folder, `keys` those of the grid."""
    places: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        place = str([described[row["folder"]][key] for key in keys])
        places.setdefault(row["variant"], {}).setdefault(place, []).append(row)
    found = {}
    for variant, tried in places.items():
        entries = [_tried(same, described, keys) for same in tried.values()]
        first = described[next(iter(tried.values()))[0]["folder"]]
        found[variant] = {
            "chosen": max(entries, key=rank)["settings"],
            "settings": {k: v for k, v in first.items() if k not in (*keys, "seed", "variant")},
            "tried": entries,
        }
    return found


def _tried(
    same: list[dict[str, Any]], described: dict[str, dict[str, Any]], keys: list[str]
) -> dict[str, Any]:
    """Return one place of the grid with its results over the seeds."""
    means = {key: statistics.fmean(row[key] for row in same) for key in ("accuracy", "loss")}
    return {
        "settings": {key: described[same[0]["folder"]][key] for key in keys},
        **means,
        "steps": statistics.fmean(row["steps"] for row in same),
        "seeds": [{key: row[key] for key in ("seed", "accuracy", "loss", "steps")} for row in same],
    }

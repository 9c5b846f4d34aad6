"""A forecast of the largest runs, frozen before they are trained.

forecast.json has its date, the runs that it was made from, and a SHA-256 over all of it. The same
hash is written into the folder of each run that it predicts, before that run is started. A forecast
that is changed afterwards is therefore detected, even if its own hash was recomputed.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mixit_titan.errors import ConfigError
from mixit_titan.files import json_text, write_json, write_text
from mixit_titan.json_form import COUNT
from mixit_titan.ladder.fits import StackFits
from mixit_titan.ladder.grid import LadderRun
from mixit_titan.ladder.points import Point
from mixit_titan.reading import json_if_good, text_if_good

STAMP = "forecast.sha256"
_LAW = ({"loss": float, "interval": [float]}, None)
_FORM = {
    "date": str,
    "sha256": str,
    "data": [{"folder": str, "loss": float}],
    "forecast": [
        {"folder": str, "name": str, "stack": str, "depth": COUNT, "surface": _LAW, "curve": _LAW}
    ],
}
Forecast = dict[str, Any]


def freeze(
    out: Path,
    fits: dict[str, StackFits],
    points: Sequence[Point],
    largest: Iterable[tuple[LadderRun, Path]],
) -> Forecast:
    """Write forecast.json for the largest runs, given with their folders."""
    rows = [_row(run, folder, fits[run.stack]) for run, folder in largest]
    lacking = sorted({row["stack"] for row in rows if row["surface"] is None})
    if lacking:
        why = "; ".join(f"{stack}: {fits[stack].missing[0]}" for stack in lacking)
        raise ConfigError(f"there are too few runs for a forecast ({why}): train more runs first")
    content = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": [point.as_json() for point in points],
        "forecast": rows,
    }
    frozen = {**content, "sha256": _hash(content)}
    write_json(out / "forecast.json", frozen)
    return frozen


def _row(run: LadderRun, folder: Path, fits: StackFits) -> dict[str, Any]:
    laws = {
        "surface": (fits.surface, (run.params, run.tokens)),
        "curve": (fits.curve, (run.flops,)),
    }
    said = {
        name: fit and {"loss": float(fit.law.loss(*at)), "interval": list(fit.prediction(*at))}
        for name, (fit, at) in laws.items()
    }
    sizes = {"params": run.params, "tokens": run.tokens, "flops": run.flops}
    own = {"folder": folder.name, "name": run.name, "stack": run.stack, "depth": run.depth}
    return {**own, **sizes, **said}


def read_forecast(out: Path) -> Forecast | None:
    """The frozen forecast, or None; a ConfigError if the file is not a forecast."""
    path = out / "forecast.json"
    if not path.exists():
        return None
    found = json_if_good(path, _FORM)
    if found is None:
        raise ConfigError(f"{path} is not a forecast, or was changed: restore the frozen one")
    return found


def stamp(forecast: Forecast, folders: Iterable[Path]) -> None:
    """Write the forecast's hash into the folders of runs that have not been started."""
    for folder in folders:
        if not (folder / "metrics.jsonl").exists() and not (folder / STAMP).exists():
            write_text(folder / STAMP, forecast["sha256"] + "\n")


def changes(
    forecast: Forecast,
    points: Sequence[Point],
    largest: Iterable[tuple[LadderRun, Path]],
) -> list[str]:
    """One sentence for each sign that the forecast, or a run that it was made from, has changed
    since it was frozen; empty if nothing has."""
    found = []
    content = {key: value for key, value in forecast.items() if key != "sha256"}
    if _hash(content) != forecast["sha256"]:
        found.append("forecast.json was changed after it was frozen: its hash does not match")
    for run, folder in largest:
        said = (text_if_good(folder / STAMP, limit=1000) or "").strip()
        if said and said != forecast["sha256"]:
            found.append(f"{run.name} was started under another forecast, {said[:12]}")
        elif not said and (folder / "metrics.jsonl").exists():
            found.append(f"{run.name} was started without a forecast")
    now = {point.folder: point.loss for point in points}
    for point in forecast["data"]:
        loss = now.get(point["folder"])
        if loss != point["loss"]:
            found.append(
                f"{point['folder']} had loss {point['loss']} when the forecast was frozen, and now "
                f"has {'none' if loss is None else loss}"
            )
    return found


def signs_of_lost(largest: Iterable[tuple[LadderRun, Path]]) -> list[str]:
    """The same where there is no forecast.json, although a run has the hash of one."""
    for _, folder in largest:
        said = (text_if_good(folder / STAMP, limit=1000) or "").strip()
        if said:
            return [f"forecast.json is missing: {folder.name} has the hash of one, {said[:12]}"]
    return []


def check_of_plan(forecast: Forecast, out: Path, largest: Iterable[tuple[LadderRun, Path]]) -> None:
    """Refuse a forecast of other runs than those that are planned."""
    planned = {folder.name for _, folder in largest}
    if not planned.issuperset(row["folder"] for row in forecast["forecast"]):
        raise ConfigError(
            f"{out / 'forecast.json'} is of other runs: repeat the options of its ladder, or name "
            "another --out"
        )


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json_text(content, sort_keys=True).encode()).hexdigest()

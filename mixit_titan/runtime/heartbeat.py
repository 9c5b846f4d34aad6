"""Where each rank is: a line of JSON in `heartbeat/rank_N` of the run's folder, which the rank's
watcher (watch.py) overwrites every few seconds. `status` reads it, and so do watchers that look for
the cause of a hang."""

import os
from pathlib import Path
from typing import Any, Literal, get_args

from mixit_titan.json_form import COUNT
from mixit_titan.reading import json_if_good, regular

_BYTES = 256  # a constant size: overwriting it works on a full disk, too

Section = Literal[
    *("start", "first step", "step", "first validation", "validation", "evaluation", "save", "end")
]
Heartbeat = dict[str, Any]
"""host, process, section, step, seconds (in the section), stopped (by a signal), heard (the alarm
that its watcher has answered)."""

_ORDER = get_args(Section)
_FORM = {
    **{"host": str, "process": COUNT, "section": str, "step": COUNT},
    **{"seconds?": float, "stopped?": bool, "heard?": str},
}


def heartbeat_file(folder: Path, rank: int) -> Path:
    """The file of a rank."""
    return folder / "heartbeat" / f"rank_{rank}"


def write_in_place(file: Path, text: str) -> None:
    """Overwrite a file without renaming or truncating it: a reader on another node that has it open
    gets the latest content."""
    descriptor = regular(str(file), os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(descriptor, text.encode()[: _BYTES - 1].ljust(_BYTES - 1) + b"\n", 0)
    finally:
        os.close(descriptor)


def read_heartbeats(folder: Path, ranks: int) -> dict[int, Heartbeat]:
    """Heartbeats by rank; ranks without a readable one are left out."""
    found = {}
    for rank in range(ranks):
        said = json_if_good(heartbeat_file(folder, rank), _FORM)
        if said is not None and said["section"] in _ORDER:
            found[rank] = said
    return found


def describe(heartbeats: dict[int, Heartbeat], ranks: int, alarm: str) -> str:
    """Which ranks are where, those that the others may be waiting for first: `rank 1 is stopped by
    a signal in step 12 for 31 s; ranks 0, 2-7 are in step 12 for 31 s`."""
    groups: dict[tuple, list[int]] = {}
    for rank in range(ranks):
        said = heartbeats.get(rank, {})
        place: tuple = (0,)
        if said.get("heard") == alarm:
            order = _ORDER.index(said["section"])
            place = (1 if said["stopped"] else 2, said["step"], order)
        groups.setdefault(place, []).append(rank)
    described = []
    for place, members in sorted(groups.items()):
        several = len(members) > 1
        who = f"ranks {_spans(members)}" if several else f"rank {members[0]}"
        if place == (0,):
            described.append(f"{who} {'show' if several else 'shows'} no sign of life")
            continue
        verb = ("are" if several else "is") + (" stopped by a signal" if place[0] == 1 else "")
        seconds = max(heartbeats[rank]["seconds"] for rank in members)
        where = section_name(_ORDER[place[2]], place[1])
        described.append(f"{who} {verb} in {where} for {seconds:.0f} s")
    return "; ".join(described)


def section_name(section: Section, step: int) -> str:
    """A section as a sentence names it: `step 12`, `save (step 12)`."""
    return f"{section} {step}" if section == "step" else f"{section} (step {step})"


def _spans(ranks: list[int]) -> str:
    """Ranks as spans: `0, 2-7`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    return ", ".join("-".join(map(str, span)) for span in spans)

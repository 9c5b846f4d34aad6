"""Section: what `mixit-titan doctor` reports."""

import json
from collections.abc import Iterator

from mixit_titan.gpu_check.check import Check, Verdict, failed, passed
from mixit_titan.gpu_check.process import module, run
from mixit_titan.gpu_check.session import Session

SECTION = "doctor"
_SECONDS = 300


def doctor(session: Session) -> Iterator[Check]:
    """Yield the one check of this section."""
    yield session.check(SECTION, "doctor", lambda: _ask(session))


def _ask(session: Session) -> Verdict:
    folder = session.folder(SECTION)
    log = folder / "doctor.json"
    ended = run(module("mixit_titan", "doctor", "--json", "--folder", folder), log, _SECONDS)
    try:
        found = json.loads(log.read_text())
    except ValueError:  # or a library has printed something next to it
        return failed(ended)
    count = {s: [c for c in found["checks"] if c["state"] == s] for s in ("wrong", "warning")}
    said = "; ".join(f"{c['name']}: {c['fact']}: {c['advice']}" for c in count["wrong"])
    if said:
        return failed(said, **found)
    warnings = len(count["warning"])
    said = f"nothing wrong, {warnings or 'no'} warning{'' if warnings == 1 else 's'}"
    return passed(said, **found)

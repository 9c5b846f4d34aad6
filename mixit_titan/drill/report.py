"""The results of a drill: a table, and drill.json."""

from pathlib import Path

from rich.table import Table

from mixit_titan.drill.faults import FAULTS
from mixit_titan.drill.run import Setup
from mixit_titan.drill.trial import Trial
from mixit_titan.files import write_json, write_text
from mixit_titan.tables import literal, markdown_table, screen_table

COLUMNS = ("fault", "outcome", "trains again", "steps lost", "losses", "weights")

_PLAIN = {"box": None, "pad_edge": False, "title_justify": "left"}


def cells(trial: Trial) -> list[str]:
    """The row of a trial. Why it failed or was skipped is printed below the table."""
    title = FAULTS[trial.fault].title
    if trial.outcome != "passed":
        return [title, trial.outcome, *("-" for _ in COLUMNS[2:])]
    differ = (trial.losses, trial.weights)
    return [
        title,
        trial.outcome,
        f"{trial.seconds:.1f} s",
        str(trial.steps_lost),
        *("the same" if each == 0 else f"{each:.1e}" for each in differ),
    ]


def screen(trials: list[Trial], setup: Setup) -> Table:
    """The table for a terminal."""
    title = f"Runs of {setup.ranks} ranks with a fault each, compared with an uninterrupted one"
    return screen_table(title, COLUMNS, map(cells, trials), left=2, **_PLAIN)


def explanations(trials: list[Trial]) -> list[str]:
    """Why faults failed or were skipped, one sentence each."""
    return [literal(f"{t.fault}, {t.outcome}: {t.why}") for t in trials if t.why]


def write(out: Path, trials: list[Trial], setup: Setup) -> None:
    """Write drill.json and drill.md."""
    said = {"ranks": setup.ranks, "steps": setup.steps, "fewer_ranks": setup.fewer}
    write_json(out / "drill.json", said | {"faults": [trial.described() for trial in trials]})
    write_text(out / "drill.md", markdown_table(COLUMNS, map(cells, trials), left=2))

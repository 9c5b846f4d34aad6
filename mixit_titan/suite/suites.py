"""The suites: the tasks of each, their difficulty, and the settings to try.

Everything else comes from the preset of the task at that scale (tasks/presets.py). Grids and the
options of a problem are written as for `mixit-titan sweep`.
"""

from dataclasses import dataclass

from mixit_titan.errors import unknown
from mixit_titan.tasks.grid import read_grid


@dataclass(frozen=True)
class Problem:
    """A task of a suite, at one difficulty."""

    task: str
    cpu: str = ""
    """Options that differ from the preset, at each scale."""
    paper: str = ""

    def options(self, scale: str) -> dict[str, list[str]]:
        """The options that differ from the preset, key -> values."""
        return read_grid(getattr(self, scale).split())


@dataclass(frozen=True)
class Suite:
    """A family of problems, and the grid of settings to try for each."""

    problems: dict[str, Problem]
    """The problems by their names in tables."""
    cpu: str = "lr=1e-3,3e-3,1e-2"
    """The grid, at each scale."""
    paper: str = "lr=3e-4,1e-3,3e-3"

    def grid(self, scale: str) -> dict[str, list[str]]:
        """The grid at a scale, key -> values to try."""
        return read_grid(getattr(self, scale).split())


SUITES = {
    # MAD's protocol, from the configs of its code: rates and weight decays, six tasks.
    "mad": Suite(
        {
            name: Problem(f"mad_{name}")
            for name in (
                *("recall", "fuzzy_recall", "noisy_recall"),
                *("selective_copying", "compression", "memorization"),
            )
        },
        paper="lr=1e-4,5e-4,1e-3 weight_decay=0.0,0.1",
    ),
    # Zoology's Figure 2, from the config of its code: the length grows with the pairs.
    "recall": Suite(
        {
            "mqar_4": Problem("mqar", "pairs=4 length=16", "pairs=4 length=64"),
            "mqar_8": Problem("mqar", "pairs=8 length=32", "pairs=8 length=128"),
            "mqar_16": Problem(
                "mqar", "pairs=16 length=64", "pairs=16 length=256 batch=256 steps=25000"
            ),
            "induction": Problem("induction"),
        },
        paper="lr=1e-4,4.6e-4,2.2e-3,1e-2",
    ),
    "state": Suite(
        {name: Problem(name) for name in ("parity", "modular_sum", "dyck_k", "sorting")}
    ),
}


def find_suite(name: str) -> Suite:
    """A suite by its name; a ConfigError if there is none of that name."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name]

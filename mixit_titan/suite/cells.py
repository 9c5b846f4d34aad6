"""The cells of a suite, one per task and stack, and the runs of each.

A cell follows MAD's protocol: first every point of the grid once, on validation and with a seed
that is never reported; then the reported seeds of the best point, on the test set. A grid of one
point needs no search. The folder of a run is named by a hash of its settings, so that a finished
run is kept and shared.
"""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixit_titan.jobs.job import Job
from mixit_titan.tasks.choice import FIRST_SEED, describe_choice, with_keys
from mixit_titan.tasks.job import result_row, task_job
from mixit_titan.tasks.settings import Run


@dataclass(frozen=True)
class Cell:
    """One task and one stack."""

    problem: str
    """The name of the task in the suite."""
    places: tuple[Run, ...]
    """One run per point of the grid."""
    keys: tuple[str, ...]
    """The keys of the grid."""
    seeds: range
    """The seeds that are reported."""
    out: Path
    device: str

    @property
    def stack(self) -> str:
        """The stack's name in tables."""
        return self.places[0].settings.name

    @property
    def attention(self) -> float:
        """The share of layers with queries and keys; 0 for an LSTM."""
        stack = self.places[0].settings.layer_stack()
        return 0.0 if stack is None else stack.attention_share

    def searched(self) -> list[Job]:
        """The runs of the search, on validation: one per point of the grid."""
        return [] if len(self.places) == 1 else [self._job(run) for run in self._trials()]

    def choice(self, failed: Collection[Path]) -> dict[str, Any] | None:
        """The chosen settings and everything that was tried; None until the search is done, or if
        there is none. A run that has `failed`, such as one that diverged, is not chosen."""
        jobs = self.searched()
        results = {job.folder: job.result for job in jobs}
        left = [folder for folder, found in results.items() if found is None]
        if not jobs or not any(results.values()) or not {*left} <= {*failed}:
            return None
        rows = [
            result_row(job.folder.name, found) for job in jobs if (found := results[job.folder])
        ]
        described = {run.hash: with_keys(run, [*self.keys]) for run in self._trials()}
        (found,) = describe_choice(rows, described, [*self.keys]).values()
        return found

    def reported(self, failed: Collection[Path]) -> list[Job]:
        """The runs of the best point, on the test set, one per seed; none until it is chosen."""
        best = self.places[0]
        if len(self.places) > 1:
            choice = self.choice(failed)
            if choice is None:
                return []
            best = next(run for run in self.places if self._place(run) == choice["chosen"])
        return [self._job(_changed(best, seed=seed)) for seed in self.seeds]

    def figures(self, failed: Collection[Path]) -> list[dict[str, Any]]:
        """The results of the reported seeds that are finished."""
        jobs = self.reported(failed)
        return [result_row(job.folder.name, found) for job in jobs if (found := job.result)]

    def _trials(self) -> list[Run]:
        return [_changed(run, seed=FIRST_SEED, held_out="validation") for run in self.places]

    def _place(self, run: Run) -> dict[str, Any]:
        described = with_keys(run, [*self.keys])
        return {key: described[key] for key in self.keys}

    def _job(self, run: Run) -> Job:
        place = [f"{key}={value}" for key, value in self._place(run).items()]
        seed = f"seed {run.settings.seed}"
        name = ", ".join([self.problem, self.stack, *place, seed])
        return task_job(run, self.out / run.hash, name=name, device=self.device)


def _changed(run: Run, **settings: Any) -> Run:
    return dataclasses.replace(run, settings=dataclasses.replace(run.settings, **settings))

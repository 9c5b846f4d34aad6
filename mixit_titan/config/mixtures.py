"""[[data.sources]] of a run: its sources, and the weight of each over the steps."""

from collections import Counter
from pathlib import Path

from mixit_titan.config.sections import DataSection, Sections, SourceSection
from mixit_titan.data.mixture import Source, Weights, whole_numbers
from mixit_titan.errors import ConfigError, shown


def read_mixture(sections: Sections) -> tuple[list[Source], list[Weights]]:
    """The sources, named by the paths of the file, and their weights from row to row; both empty
    where the file has only a path. Raises a ConfigError for an invalid mixture."""
    data, training = sections.data, sections.training
    if not data.sources:
        return [], []
    by_path: dict[str, dict[int, SourceSection]] = {path: {} for path in data.paths}
    for table in data.sources:
        steps = by_path[table.path]
        if table.after in steps:
            raise ConfigError(
                f"data.sources: path = {shown(table.path)} has two weights after step "
                f"{table.after}: leave one out"
            )
        steps[table.after] = table
    last = sections.lr_scheduler.total_steps or training.steps
    _check_steps(data, training.global_batch_size, last)
    spells = []
    for step in sorted({0, *(table.after for table in data.sources)}):
        weights = tuple(_weight(steps, step) for steps in by_path.values())
        whole_numbers(weights)  # raises if they are not
        spells.append(Weights(max(step * training.global_batch_size, 0), weights))
    return _named(by_path), spells


def _weight(steps: dict[int, SourceSection], step: int) -> float:
    """The weight of a source after that step."""
    last = max((after for after in steps if after <= step), default=None)
    return 0 if last is None else steps[last].weight


def _check_steps(data: DataSection, batch: int, last: int) -> None:
    for table in data.sources:
        if table.after >= last:
            raise ConfigError(
                f"data.sources: the weight of path = {shown(table.path)} would never change, "
                f"because after = {table.after} and the last step is {last}: lower it, or raise "
                "training.steps"
            )
        if table.after and batch == -1:
            raise ConfigError(
                f"data.sources: after = {table.after} needs training.global_batch_size, so that a "
                "step has the same rows on any number of ranks: set it"
            )


def _named(by_path: dict[str, dict[int, SourceSection]]) -> list[Source]:
    """The sources by the names that they are given, else by the names of their folders."""
    names = {
        path: next((t.name for t in steps.values() if t.name), None) or Path(path).absolute().name
        for path, steps in by_path.items()
    }
    for name, count in Counter(names.values()).items():
        if count > 1:
            raise ConfigError(
                f"data.sources: {count} paths are called {shown(name)} in the metrics: give each a "
                "name of its own"
            )
    return [Source(path, name) for path, name in names.items()]

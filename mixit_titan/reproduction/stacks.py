"""How much attention is needed, and where: stacks of four layers from all-mixing to all-attention.

This is not in the paper, and does not run by default. All stacks of a column share the task's cpu
preset, with four layers; the language models are those of Table 2. The number of stacks and the
sizes of the tasks were chosen so that attention in all four layers solves retrieval on validation,
and all of it takes about half an hour on two cores.
"""

import dataclasses
from functools import partial

from mixit_titan.model.stack import read_stack
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit, Shown, measure
from mixit_titan.reproduction.jobs import FEWEST_SEEDS, Plan, stack_point
from mixit_titan.reproduction.language import SOURCES, models
from mixit_titan.reproduction.stacks_figure import draw_stacks
from mixit_titan.reproduction.units import BITS_PER_BYTE, LAYERS, PERCENT

_LAYERS = 4
_STACKS = (
    "mixit",
    "mixit standard@first",
    "mixit standard@1",
    "mixit standard@2",
    "mixit standard@last",
    "mixit standard@lower",
    "mixit standard@upper",
    "mixit standard",
    "standard mixit@first",
    "standard mixit@last",
    "standard",
)
_LANGUAGE_MODELS = ("mixit", "mixit standard@first", "mixit standard@last", "standard")
"""The stacks with a language model; to save time, the others have tasks only."""
_SHARE = "attention layers"
_TASKS: dict[str, tuple[str, dict[str, int]]] = {
    "retrieval": ("retrieval", {"pairs": 8, "vocab": 24, "steps": 800}),
    "k-hop": ("hop", {"hops": 2, "steps": 500}),
}
"""Column -> the task, and the options that differ from its preset."""
_LANGUAGE = "language model (bits per byte)"


def share_of_attention(stack: str) -> float:
    """The share of the four layers that attend."""
    return read_stack(stack, _LAYERS).attention_share


def _cells(plan: Plan) -> Cells:
    """The cells, at the sizes of cpu whatever the scale."""
    plan = dataclasses.replace(plan, scale="cpu").with_fewer_seeds(FEWEST_SEEDS)
    return {stack: _row(plan, stack) for stack in _STACKS}


def _row(plan: Plan, stack: str) -> dict[str, Cell]:
    row = {_SHARE: Cell(counted=share_of_attention(stack))}
    for name, (task, own) in _TASKS.items():
        row[name] = Cell((stack_point(plan, task, stack, layers=_LAYERS, **own),))
    if stack in _LANGUAGE_MODELS:
        jobs = models(plan, stack, SOURCES)
        row[_LANGUAGE] = Cell((jobs,), lambda line: line["bits_per_byte"])
    return row


def _note(plan: Plan) -> str:
    """What was held equal, and what one attention layer contributes, by the finished results."""
    shown = measure(STACKS_EXHIBIT, _cells(plan))
    found = [said for column in (*_TASKS, _LANGUAGE) if (said := _of_one_layer(shown, column))]
    equal = "All stacks of a column have the same width, learning rate, batch size and steps."
    return f"{equal} With one attention layer of four: {'; '.join(found)}." if found else equal


def _of_one_layer(shown: Shown, column: str) -> str:
    """The range over the positions of one attention layer; empty until all stacks have run."""
    means = {row: found.get(column) for row, found in shown.figures.items() if column in found}
    if None in means.values():
        return ""
    unit = shown.exhibit.unit(column)
    one = [row for row in means if share_of_attention(row) == 1 / _LAYERS]
    by_value = sorted(one, key=means.get, reverse=unit is not PERCENT)
    worst, best = (f"{unit.show(means[row])} with `{row}`" for row in (by_value[0], by_value[-1]))
    none, all_of_them = (unit.show(means[row]) for row in ("mixit", "standard"))
    return f"{column} from {worst} to {best} (none: {none}, all: {all_of_them})"


STACKS_EXHIBIT = Exhibit(
    id="stacks",
    title="Stacks: number and position of attention layers",
    row="stack",
    column="value",
    units={_SHARE: LAYERS, "all": PERCENT, _LANGUAGE: BITS_PER_BYTE},
    paper={},
    claims=(),
    cells=_cells,
    draw=partial(draw_stacks, layers=_LAYERS),
    caption="Accuracy on two tasks and validation loss of a small language model over the number "
    "of attention layers out of four, the others being mixing layers; one marker per stack.",
    note=_note,
    by_default=False,
)

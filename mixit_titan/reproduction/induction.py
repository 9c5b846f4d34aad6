"""Tasks that need induction heads: Table 1, Figure 2 and Figure 3.

They share runs: one point of Figure 2 is Table 1's, and Figure 3 analyzes its models.
"""

import shutil
from pathlib import Path

from mixit_titan import json_form
from mixit_titan.jobs.job import Job, Result
from mixit_titan.reproduction.claims import (
    EVERY,
    FIRST,
    Claim,
    Effect,
    Figures,
    Level,
    at_least,
    value,
)
from mixit_titan.reproduction.comparisons import apart, in_order
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit, Shown
from mixit_titan.reproduction.figures import draw_bars, draw_lines
from mixit_titan.reproduction.jobs import FEWEST_SEEDS, Plan, analysis, task_grid, task_point
from mixit_titan.reproduction.paper import TABLE_1
from mixit_titan.reproduction.trends import changes, falls_first, stays
from mixit_titan.reproduction.units import PERCENT, SHARE
from mixit_titan.tasks.options import preset_run

VARIANTS = ("standard", "frozen_mlp", "frozen_qk", "mixit")
_TASKS = {"k-hop": "hop", "retrieval": "retrieval"}


def _table_1(plan: Plan) -> Cells:
    return {
        variant: {name: Cell(task_grid(plan, task, variant)) for name, task in _TASKS.items()}
        for variant in VARIANTS
    }


def _of_table_1(name: str, task: str) -> tuple[Claim, Claim]:
    """The order, in which the first two tie within a point in the paper, and the gap: fixed mixing
    fails where frozen queries and keys do not."""
    standard = at_least(TABLE_1, "standard", name, 0.9, PERCENT)
    frozen_qk = at_least(TABLE_1, "frozen_qk", name, 0.8, PERCENT)
    order = "standard >= frozen_mlp > frozen_qk > mixit"
    gap = ("frozen_qk", "mixit", 0.2, PERCENT)
    return (
        in_order(
            f"table1.{task}.order",
            order,
            PERCENT,
            column=name,
            tie=0.01,
            needs=(standard, frozen_qk),
        ),
        apart(f"table1.{task}.gap", *gap, column=name, needs=(frozen_qk,)),
    )


TABLE_1_EXHIBIT = Exhibit(
    id="table1",
    title="Table 1: tasks that need induction heads",
    row="model",
    column="task",
    units={"all": PERCENT},
    paper=TABLE_1,
    claims=tuple(c for name, task in _TASKS.items() for c in _of_table_1(name, task)),
    cells=_table_1,
    draw=draw_bars,
    caption="Accuracy of each model; black lines: the paper. Fixed random attention cannot search "
    "for a token; random queries and keys can.",
)


def most_pairs(plan: Plan) -> list[int]:
    """The x values of Figure 2, among them Table 1's. The paper does not list its own; on a CPU
    ours extend beyond Table 1's, to where frozen_qk falls too."""
    most = _preset_pairs(plan)
    shares = (0.25, 0.5, 0.75, 1, 1.25) if plan.scale == "cpu" else (0.2, 0.4, 0.6, 0.8, 1)
    return [2, *(round(share * most) for share in shares)]


def _figure_2(plan: Plan) -> Cells:
    """The cells of Figure 2. It has many points, so only Table 1's has all seeds."""
    fewest, shared = plan.with_fewer_seeds(FEWEST_SEEDS), _preset_pairs(plan)

    def cell(variant: str, pairs: int) -> Cell:
        seeds = plan if pairs == shared else fewest
        return Cell((task_point(seeds, "retrieval", variant, pairs=pairs),))

    return {
        variant: {str(pairs): cell(variant, pairs) for pairs in most_pairs(plan)}
        for variant in VARIANTS
    }


def _preset_pairs(plan: Plan) -> int:
    return preset_run("retrieval", plan.scale, []).task.pairs


def _draw_figure_2(shown: Shown, path: Path) -> str | None:
    """Draw with both chance levels: guessing any value, and guessing a value of the sequence, which
    is right with probability 1/m, averaged over m = 1..most."""
    jobs = (job for row in shown.cells.values() for cell in row.values() for job in cell.jobs)
    values = next((job.settings["vocab"] // 2 for job in jobs), 1)
    chance = (
        ("chance: a value of the sequence", lambda n: sum(1 / m for m in range(1, n + 1)) / n),
        ("chance: any value", lambda n: 1 / values),
    )
    return draw_lines(shown, path, linear=True, chance=chance)


_SOLVED = at_least(TABLE_1, "standard", "retrieval", 0.9, PERCENT, place=EVERY)

FIGURE_2_EXHIBIT = Exhibit(
    id="figure2",
    title="Figure 2: retrieval over the largest number of pairs in a sequence",
    row="model",
    column="pairs",
    units={"all": PERCENT},
    paper={},
    claims=(
        changes(
            "figure2.mixit",
            "mixit",
            -0.2,
            "pairs",
            PERCENT,
            needs=(_SOLVED,),
            in_paper="a figure without numbers: MixiT falls at once",
        ),
        falls_first(
            "figure2.frozen_qk",
            "mixit",
            "frozen_qk",
            0.2,
            "pairs",
            PERCENT,
            needs=(
                _SOLVED,
                at_least(TABLE_1, "frozen_qk", "retrieval", 0.9, PERCENT, place=FIRST),
            ),
            in_paper="a figure without numbers: Frozen-QK falls late",
        ),
        stays(
            "figure2.others",
            ("standard", "frozen_mlp"),
            0.05,
            "pairs",
            PERCENT,
            needs=(
                _SOLVED,
                at_least(TABLE_1, "frozen_mlp", "retrieval", 0.9, PERCENT, place=EVERY),
            ),
            in_paper="a figure without numbers: the other two do not fall",
        ),
    ),
    cells=_figure_2,
    draw=_draw_figure_2,
    caption="Accuracy of models trained with at most N key-value pairs in a sequence, with 95% "
    "intervals; dotted: chance levels.",
)


def _figure_3(plan: Plan) -> Cells:
    """The cells of Figure 3, from Table 1's frozen_qk models with two layers."""
    return heads_of(plan, task_point(plan, "retrieval", "frozen_qk", layers=2))


def heads_of(plan: Plan, runs: tuple[Job, ...]) -> Cells:
    """The head scores of runs, from one attention analysis each, and the runs' accuracy."""
    jobs = tuple(
        analysis("attention", run, plan.out / "attention" / run.folder.name, _ATTENTION)
        for run in runs
    )
    found: Cells = {
        head: {
            column: Cell((jobs,), lambda result, k=kind, c=column: _of_heads(result, k, c))
            for column in (*_LAYERS, "uniform")
        }
        for head, kind in _HEADS.items()
    }
    return found | {"the model": {"accuracy": Cell((runs,))}}


_HEADS = {"previous-token head": "previous", "induction head": "induction"}
_LAYERS = {"layer 1": 0, "layer 2": 1}
_LEAST_SHARE = 1e-3
"""The smallest uniform baseline to divide by: a resampled mean of few seeds can be 0."""
_ATTENTION = {
    "uniform": {kind: float for kind in _HEADS.values()},
    "heads": [{"layer": json_form.COUNT, **{kind: float for kind in _HEADS.values()}}],
}


def _of_heads(found: Result, kind: str, column: str) -> float:
    """The score of the best head of a layer."""
    if column == "uniform":
        return found["uniform"][kind]
    return max(head[kind] for head in found["heads"] if head["layer"] == _LAYERS[column])


def _attends(id: str, head: str, layer: str, in_paper: str) -> Claim:
    (other,) = _LAYERS.keys() - {layer}

    def times(figures: Figures) -> float:
        return value(figures, head, layer) / max(value(figures, head, "uniform"), _LEAST_SHARE)

    def right(figures: Figures) -> bool:
        best = value(figures, head, layer)
        return best > value(figures, head, other) and times(figures) >= 2

    def shows(figures: Figures) -> str:
        said = [f"{column} {value(figures, head, column):.2f}" for column in (*_LAYERS, "uniform")]
        return f"best {head}: {', '.join(said)}"

    return Claim(
        id=id,
        says=f"the best {head} is in {layer}, with at least twice the uniform baseline",
        right=right,
        shows=shows,
        effect=Effect(f"best of {layer} / uniform", times, ratio=True),
        needs=(Level("the model", "accuracy", PERCENT, least=0.8 * _FROZEN_QK),),
        in_paper=in_paper,
    )


_FROZEN_QK = TABLE_1["frozen_qk"]["retrieval"]


def _copy_maps(shown: Shown, path: Path) -> str | None:
    """Copy the maps of the first finished seed; None as long as no model has been analyzed."""
    jobs = shown.cells["induction head"]["uniform"].jobs
    done = next((job for job in jobs if job.result is not None), None)
    if done is None:
        return None
    shutil.copyfile(done.folder / "attention.png", path)
    said = [
        f"The best {head} score is {found['layer 1']:.2f} in layer 1 and {found['layer 2']:.2f} in "
        f"layer 2; the uniform baseline is {found['uniform']:.2f}."
        for head, found in shown.figures.items()
        if found.get("uniform") is not None
    ]
    return f"Attention maps of one retrieval example, one map per head. {' '.join(said)}"


FIGURE_3_EXHIBIT = Exhibit(
    id="figure3",
    title="Figure 3: the induction head of a frozen_qk model on retrieval",
    row="frozen_qk",
    column="value",
    units={"all": SHARE, "accuracy": PERCENT},
    paper={},
    claims=(
        _attends(
            "figure3.previous",
            "previous-token head",
            "layer 1",
            "a figure: a head of the first layer attends to the previous token",
        ),
        _attends(
            "figure3.induction",
            "induction head",
            "layer 2",
            "a figure: a head of the second layer attends from the query to its value",
        ),
    ),
    cells=_figure_3,
    draw=_copy_maps,
    caption="Attention maps of every layer and head on one example, for the first seed. The two "
    "heads of the paper's figure are found by their scores and outlined; the table has the best "
    "score of each layer and the uniform baseline.",
)

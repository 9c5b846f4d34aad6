"""What needs induction heads: Table 1, Figure 2 and Figure 3.

They share runs: the most pairs of Figure 2 are Table 1's, and Figure 3 looks into one of them.
"""

import shutil
from pathlib import Path

from mixit_titan import json_form
from mixit_titan.jobs.job import Job, Result
from mixit_titan.reproduction.claims import (
    Claim,
    Figures,
    apart,
    changes,
    falls_first,
    in_order,
    stays,
    value,
)
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit, Shown
from mixit_titan.reproduction.figures import draw_bars, draw_lines
from mixit_titan.reproduction.jobs import Plan, analysis, task_grid, task_point
from mixit_titan.reproduction.paper import TABLE_1
from mixit_titan.reproduction.units import COUNT, PERCENT, SHARE
from mixit_titan.tasks.options import preset_run

VARIANTS = ("standard", "frozen_mlp", "frozen_qk", "mixit")
_TASKS = {"k-hop": "hop", "retrieval": "retrieval"}


def _table_1(plan: Plan) -> Cells:
    return {
        variant: {name: Cell(task_grid(plan, task, variant)) for name, task in _TASKS.items()}
        for variant in VARIANTS
    }


TABLE_1_EXHIBIT = Exhibit(
    id="table1",
    title="Table 1: tasks that need induction heads",
    row="model",
    column="task",
    units={"all": PERCENT},
    paper=TABLE_1,
    claims=tuple(
        claim
        for name, task in _TASKS.items()
        for claim in (
            in_order(f"table1.{task}.order", VARIANTS, PERCENT, column=name, tie=0.01),
            apart(f"table1.{task}.gap", "frozen_qk", "mixit", 0.2, PERCENT, column=name),
        )
    ),
    cells=_table_1,
    draw=draw_bars,
    caption="Accuracy of each model, with the paper's as a black line. A fixed random attention "
    "cannot look for a token; random queries and keys can.",
)


def most_pairs(plan: Plan) -> list[int]:
    """The last is Table 1's. The paper's figure has no list of its places."""
    most = preset_run("retrieval", plan.scale, []).task.pairs
    between = (0.6,) if plan.scale == "cpu" else (0.2, 0.4, 0.6, 0.8)
    return [2, *(round(share * most) for share in between), most]


def _figure_2(plan: Plan) -> Cells:
    return {
        variant: {
            str(pairs): Cell((task_point(plan, "retrieval", variant, pairs=pairs),))
            for pairs in most_pairs(plan)
        }
        for variant in VARIANTS
    }


_FALLS = "a picture without figures: MixiT falls at once"
_LATE = "a picture without figures: Frozen-QK falls late"
_STAY = "a picture without figures: the other two stay"

FIGURE_2_EXHIBIT = Exhibit(
    id="figure2",
    title="Figure 2: retrieval against the most pairs in a sequence",
    row="model",
    column="pairs",
    units={"all": PERCENT},
    paper={},
    claims=(
        changes("figure2.mixit", "mixit", -0.2, "pairs", PERCENT, in_paper=_FALLS),
        falls_first("figure2.frozen_qk", "mixit", "frozen_qk", 0.2, "pairs", PERCENT, _LATE),
        stays("figure2.others", ("standard", "frozen_mlp"), 0.05, "pairs", PERCENT, in_paper=_STAY),
    ),
    cells=_figure_2,
    draw=draw_lines,
    caption="Accuracy of models trained with at most so many key-value pairs in a sequence.",
)


def _figure_3(plan: Plan) -> Cells:
    """Of the first seed's two-layer frozen_qk model at the preset, which Table 1 has too."""
    return heads_of(plan, task_point(plan, "retrieval", "frozen_qk", layers=2)[0])


def heads_of(plan: Plan, run: Job) -> Cells:
    job = analysis("attention", run, plan.out / "attention" / run.folder.name, _ATTENTION)
    return {
        title: {
            column: Cell(((job,),), lambda found, k=kind, c=column: _of_head(found, k, c))
            for column in _HEAD_UNITS
        }
        for title, kind in _HEADS.items()
    }


_HEADS = {"previous-token head": "previous", "induction head": "induction"}
_HEAD = {"score": float, "layer": json_form.COUNT, "head": json_form.COUNT}
_ATTENTION = {
    "uniform": {kind: float for kind in _HEADS.values()},
    **{f"{kind}_head": _HEAD for kind in _HEADS.values()},
}
_HEAD_UNITS = {"layer": COUNT, "head": COUNT, "attention": SHARE, "uniform": SHARE}


def _of_head(found: Result, kind: str, column: str) -> float:
    if column == "uniform":
        return found["uniform"][kind]
    best = found[f"{kind}_head"]
    return best["score"] if column == "attention" else best[column] + 1  # from 1, as the pictures


def _attends(id: str, head: str, layer: int, in_paper: str) -> Claim:
    def decide(figures: Figures) -> tuple[bool, str]:
        where = value(figures, head, "layer")
        share, uniform = (value(figures, head, column) for column in ("attention", "uniform"))
        shown = f"best in layer {where:.0f}: {share:.2f} of its attention, uniform {uniform:.2f}"
        return where == layer and share >= 2 * uniform, shown

    says = f"the best {head} is in layer {layer}, with twice the share of uniform attention or more"
    return Claim(id, says, decide, in_paper)


def _copy_maps(shown: Shown, path: Path) -> str:
    cell = shown.cells["induction head"]["layer"]
    shutil.copyfile(cell.jobs[0].folder / "attention.png", path)
    said = [
        f"The best {head} is in layer {found['layer']:.0f}: {found['attention']:.2f} of its "
        f"attention, where a uniform one has {found['uniform']:.2f}."
        for head, found in shown.figures.items()
    ]
    return f"Attention maps of one retrieval example, a map a head. {' '.join(said)}"


FIGURE_3_EXHIBIT = Exhibit(
    id="figure3",
    title="Figure 3: the induction head of a frozen_qk model on retrieval",
    row="of frozen_qk",
    column="figure",
    units=_HEAD_UNITS,
    paper={},
    claims=(
        _attends(
            "figure3.previous",
            "previous-token head",
            1,
            "a picture: a head of the first layer attends to the token before",
        ),
        _attends(
            "figure3.induction",
            "induction head",
            2,
            "a picture: a head of the second layer attends from the query to its value",
        ),
    ),
    cells=_figure_3,
    draw=_copy_maps,
    caption="Attention of every layer and head on one example; the two heads of the paper's figure "
    "are found by their scores and outlined.",
)

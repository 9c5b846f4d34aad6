"""What needs induction heads: Table 1, Figure 2 and Figure 3.

They share runs: the most pairs of Figure 2 are Table 1's, and Figure 3 looks into one of them.
"""

import shutil
from pathlib import Path

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
from mixit_titan.reproduction.jobs import Plan, analysis, task_grid, task_point
from mixit_titan.reproduction.paper import TABLE_1
from mixit_titan.reproduction.pictures import draw_bars, draw_lines
from mixit_titan.reproduction.units import COUNT, PERCENT, SHARE
from mixit_titan.tasks.settings import preset_run

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
    return sorted({2, round(0.4 * most), round(0.7 * most), most})


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
    run, *_ = task_point(plan, "retrieval", "frozen_qk", layers=2)
    job = analysis("attention", run, plan.out / "attention" / run.folder.name)
    return {
        "frozen_qk": {
            f"{title}: {what}": Cell(((job,),), lambda found, h=head, w=what: _head(found[h], w))
            for title, head in _HEADS.items()
            for what in ("layer", "score")
        }
    }


_HEADS = {"previous token": "previous_head", "induction": "induction_head"}


def _head(found: dict, what: str) -> float:
    """Layers are counted from 1, as the paper does."""
    return found["layer"] + 1 if what == "layer" else found["score"]


def _attends(id: str, title: str, layer: int, in_paper: str) -> Claim:
    def decide(figures: Figures) -> tuple[bool, str]:
        where = value(figures, "frozen_qk", f"{title}: layer")
        score = value(figures, "frozen_qk", f"{title}: score")
        shown = f"best head in layer {where:.0f}, {SHARE.show(score)} of its attention"
        return where == layer and score >= 0.5, shown

    says = f"{title}: the best head is in layer {layer} and puts half of its attention there"
    return Claim(id, says, decide, in_paper)


def _copy_maps(shown: Shown, path: Path) -> str:
    (cell, *_) = shown.cells["frozen_qk"].values()
    drawn = cell.jobs[0].folder / "attention.png"
    shutil.copyfile(drawn, path)
    return "A grid of attention maps, a row a layer and a column a head, of one retrieval example."


FIGURE_3_EXHIBIT = Exhibit(
    id="figure3",
    title="Figure 3: the induction head of a frozen_qk model on retrieval",
    row="model",
    column="head",
    units={
        f"{title}: {what}": unit
        for title in _HEADS
        for what, unit in (("layer", COUNT), ("score", SHARE))
    },
    paper={},
    claims=(
        _attends(
            "figure3.previous",
            "previous token",
            1,
            "a picture: a head of the first layer attends to the token before",
        ),
        _attends(
            "figure3.induction",
            "induction",
            2,
            "a picture: a head of the second layer attends from the query to its value",
        ),
    ),
    cells=_figure_3,
    draw=_copy_maps,
    caption="Attention of every layer and head on one example; the two heads of the paper's figure "
    "are found by their scores and outlined.",
)

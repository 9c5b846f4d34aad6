"""Table 6: decimal addition by depth.

At cpu scale its settings are choices of its own, `choices/table6_*.json`: the same grid and the
authors' initial sizes for both models, on the shallowest alone, so that depth has no part in it.
Heads are not in the grid: MixiT has as many as it can, attention with its rotary embeddings few.
"""

from functools import cache
from pathlib import Path
from typing import Any

from mixit_titan.reproduction.claims import EVERY, FIRST, LAST, at_least
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit
from mixit_titan.reproduction.figures import draw_lines
from mixit_titan.reproduction.jobs import FEWER_SEEDS, Plan, task_point
from mixit_titan.reproduction.paper import TABLE_6
from mixit_titan.reproduction.trends import changes, ends_above, stays
from mixit_titan.reproduction.units import PERCENT
from mixit_titan.tasks.choice import read_choice

_FOLDER = Path(__file__).parent / "choices"
CHOICES = tuple(_FOLDER / f"table6_{variant}.json" for variant in TABLE_6)
SET = ("init_std", "embedding_std", "steps", "heads")
"""The same in all trials of a model; all but the heads, the same for both models."""


@cache
def own_settings() -> dict[str, dict[str, Any]]:
    """By model: what was set for it, and what was chosen."""
    return {
        variant: {key: found["settings"][key] for key in SET} | found["chosen"]
        for file in CHOICES
        for variant, found in read_choice(file)["variants"].items()
    }


def _table_6(plan: Plan) -> Cells:
    plan = plan.with_fewer_seeds(FEWER_SEEDS)
    own = own_settings() if plan.scale == "cpu" else {}
    return {
        variant: {
            n: Cell((task_point(plan, "addition", variant, layers=int(n), **own.get(variant, {})),))
            for n in depths
        }
        for variant, depths in TABLE_6.items()
    }


def _about_table_6(plan: Plan) -> str:
    if plan.scale != "cpu":
        return ""
    said = "; ".join(
        f"{variant} {', '.join(f'{key} {value:g}' for key, value in own.items())}"
        for variant, own in own_settings().items()
    )
    return (
        "Settings were chosen for this table, from one grid for both models and at 2 layers alone: "
        f"{said}."
    )


TABLE_6_EXHIBIT = Exhibit(
    id="table6",
    title="Table 6: decimal addition by depth",
    row="model",
    column="layers",
    units={"all": PERCENT},
    paper=TABLE_6,
    claims=(
        stays(
            "table6.mixit",
            ("mixit",),
            0.03,
            "depth",
            PERCENT,
            needs=(at_least(TABLE_6, "mixit", "2", 0.9, PERCENT, place=EVERY),),
        ),
        changes(
            "table6.random",
            "random",
            -0.1,
            "depth",
            PERCENT,
            needs=(at_least(TABLE_6, "random", "2", 0.8, PERCENT, place=FIRST),),
        ),
        ends_above(
            "table6.gap",
            "mixit",
            "random",
            0.2,
            "depth",
            PERCENT,
            needs=(at_least(TABLE_6, "mixit", "16", 0.9, PERCENT, place=LAST),),
        ),
    ),
    cells=_table_6,
    choices=CHOICES,
    draw=draw_lines,
    caption="Accuracy; dashed: the paper's. MixiT stays trainable at depth, a transformer of "
    "random layers does not.",
    note=_about_table_6,
)

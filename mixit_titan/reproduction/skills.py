"""Tasks that need no learned attention: Tables 3 to 5."""

from mixit_titan.model.accounting import count
from mixit_titan.model.shapes import find_flavor
from mixit_titan.model.variants import find_variant
from mixit_titan.reproduction.claims import EVERY, LAST, at_least
from mixit_titan.reproduction.comparisons import equal, in_order, near
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit
from mixit_titan.reproduction.figures import draw_bars, draw_lines
from mixit_titan.reproduction.jobs import Plan, task_grid, task_point
from mixit_titan.reproduction.paper import TABLE_3, TABLE_4, TABLE_5
from mixit_titan.reproduction.trends import changes, stays
from mixit_titan.reproduction.units import BITS, COUNT, PERCENT
from mixit_titan.tasks.options import preset_run

_TASKS = {
    "addition": "addition",
    "Dyck-1": "dyck",
    "modular": "modular",
    "memorization": "memorization",
    "Yelp": "yelp",
}


def _tasks(plan: Plan, names: list[str]) -> list[str]:
    """The tasks that can run: reviews need a file or, at paper scale, the hub."""
    has_reviews = plan.reviews is not None or plan.scale == "paper"
    return [name for name in names if name != "Yelp" or has_reviews]


def _about_reviews(plan: Plan) -> str:
    missing = (
        "" if "Yelp" in _tasks(plan, ["Yelp"]) else "Yelp is not run: give reviews with --reviews."
    )
    return plan.about_reviews or missing


def _table_3(plan: Plan) -> Cells:
    return {
        variant: {
            name: Cell(task_grid(plan, _TASKS[name], variant, **_easier(plan, _TASKS[name])))
            for name in _tasks(plan, [*_TASKS])
        }
        for variant in TABLE_3
    }


def _easier(plan: Plan, task: str) -> dict[str, int]:
    """Options that make memorization solvable: its cpu preset is Table 4's, which is beyond the
    capacity of the model, so Table 3 has a quarter of the pairs."""
    if task != "memorization" or plan.scale != "cpu":
        return {}
    return {"keys": preset_run(task, plan.scale, []).task.keys // 2}


def _level(name: str) -> float:
    """The share of the paper's accuracy that a claim requires. It is lower for reviews, as the film
    review snippets that stand in for Yelp say less than a review of 256 words."""
    return 0.7 if name == "Yelp" else 0.9


TABLE_3_EXHIBIT = Exhibit(
    id="table3",
    title="Table 3: tasks that random attention solves",
    row="model",
    column="task",
    units={"all": PERCENT},
    paper=TABLE_3,
    claims=tuple(
        near(
            f"table3.{task}",
            ("frozen_qk", "mixit"),
            "standard",
            0.03,
            PERCENT,
            column=name,
            needs=(at_least(TABLE_3, "standard", name, _level(name), PERCENT),),
        )
        for name, task in _TASKS.items()
    ),
    cells=_table_3,
    draw=draw_bars,
    caption="Accuracy of each model; black lines: the paper.",
    note=_about_reviews,
    reviews=True,
)


def _table_4(plan: Plan) -> Cells:
    own = {} if plan.scale == "cpu" else {"width": 128, "lr": 5e-3, "steps": 10_000}
    table: Cells = {}
    for variant in TABLE_4:
        place = task_point(plan, "memorization", variant, **own)
        table[variant] = {
            "accuracy": Cell((place,)),
            "bits per parameter": Cell((place,), lambda result: result["bits_per_parameter"]),
            "trained": Cell(counted=_trained(variant)),
        }
    return table


def _trained(variant: str) -> int:
    """Trained parameters at the paper's shape, whatever the scale."""
    return count(find_flavor("table4"), find_variant(variant)).trainable


_BY_ACCURACY = "standard > frozen_qk >= mixit > frozen_mlp"
_REMEMBER = ("standard", "frozen_qk", "mixit")
TABLE_4_EXHIBIT = Exhibit(
    id="table4",
    title="Table 4: memorization below saturation",
    row="model",
    column="figure",
    units={"accuracy": PERCENT, "bits per parameter": BITS, "trained": COUNT},
    paper=TABLE_4,
    claims=(
        in_order(
            "table4.accuracy",
            _BY_ACCURACY,
            PERCENT,
            column="accuracy",
            tie=0.03,
            needs=tuple(at_least(TABLE_4, row, "accuracy", 0.7, PERCENT) for row in _REMEMBER),
        ),
        in_order(
            "table4.bits",
            _BY_ACCURACY,
            BITS,
            column="bits per parameter",
            tie=0.1,
            needs=tuple(
                at_least(TABLE_4, row, "bits per parameter", 0.5, BITS) for row in _REMEMBER
            ),
        ),
        equal(
            "table4.counts",
            {row: figures["trained"] for row, figures in TABLE_4.items()},
            COUNT,
            column="trained",
        ),
    ),
    cells=_table_4,
    draw=draw_bars,
    caption="Share of random pairs that are memorized; black lines: the paper. It is the MLP that "
    "memorizes.",
    note=lambda plan: "Trained parameters are counted at the paper's shape, whatever the scale.",
)


_TABLE_5_STEPS = {"Dyck-1": 1000}
"""Steps at cpu scale that differ from the preset; they are enough for any number of heads."""


def _table_5(plan: Plan) -> Cells:
    cpu = plan.scale == "cpu"
    table: Cells = {}
    for name in _tasks(plan, [*TABLE_5]):
        own = {"steps": _TABLE_5_STEPS[name]} if cpu and name in _TABLE_5_STEPS else {}
        table[name] = {
            str(heads): Cell((task_point(plan, _TASKS[name], "mixit", heads=heads, **own),))
            for heads in ((4, 16, 64) if cpu else (4, 16, 64, 256))
        }
    return table


TABLE_5_EXHIBIT = Exhibit(
    id="table5",
    title="Table 5: MixiT over the number of heads",
    row="task",
    column="heads",
    units={"all": PERCENT},
    paper=TABLE_5,
    claims=(
        changes(
            "table5.addition",
            "addition",
            0.1,
            "heads",
            PERCENT,
            needs=(at_least(TABLE_5, "addition", "256", 0.7, PERCENT, place=LAST),),
        ),
        changes(
            "table5.dyck",
            "Dyck-1",
            0.05,
            "heads",
            PERCENT,
            needs=(at_least(TABLE_5, "Dyck-1", "256", 0.9, PERCENT, place=LAST),),
        ),
        stays(
            "table5.yelp",
            ("Yelp",),
            0.03,
            "heads",
            PERCENT,
            needs=(at_least(TABLE_5, "Yelp", "4", _level("Yelp"), PERCENT, place=EVERY),),
        ),
    ),
    cells=_table_5,
    draw=draw_lines,
    caption="Accuracy of mixit; dashed: the paper. Each head is one fixed sum of the tokens before "
    "it, so more heads carry more information.",
    note=_about_reviews,
    reviews=True,
)

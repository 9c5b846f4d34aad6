"""Appendix D: the throughput of training."""

from mixit_titan.jobs.job import Result
from mixit_titan.reproduction.claims import in_order
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit
from mixit_titan.reproduction.figures import draw_bars
from mixit_titan.reproduction.jobs import Plan, benchmark
from mixit_titan.reproduction.paper import THROUGHPUT
from mixit_titan.reproduction.units import RATE, RATIO

# The paper's shape but for the vocabulary, which a CPU would spend its time on.
_CPU = {"width": "512", "layers": 12, "heads": 8, "vocab": 8192, "seq-len": "256", "batch": "4"}
_PAPER = {"flavor": "paper", "batch": "64"}
_REHEARSAL = {"flavor": "debug", "batch": "4"}


def _cells(plan: Plan) -> Cells:
    at = _REHEARSAL if plan.steps else _CPU if plan.scale == "cpu" else _PAPER
    job = benchmark(plan, tuple(THROUGHPUT), at)
    keys = {"ratio to standard": "ratio", "samples/s": "samples_per_s"}
    return {
        variant: {
            column: Cell(((job,),), lambda found, v=variant, k=key: _of(found, v)[k])
            for column, key in keys.items()
        }
        for variant in THROUGHPUT
    }


def _of(found: Result, variant: str) -> Result:
    return next(row for row in found["variants"] if row["variant"] == variant)


THROUGHPUT_EXHIBIT = Exhibit(
    id="throughput",
    title="Appendix D: throughput of training",
    row="model",
    column="figure",
    units={"samples/s": RATE, "ratio to standard": RATIO},
    paper=THROUGHPUT,
    claims=(
        in_order(
            "throughput.order", tuple(THROUGHPUT), RATIO, column="ratio to standard", rising=True
        ),
    ),
    cells=_cells,
    draw=draw_bars,
    caption="Training throughput relative to standard, with the paper's as a black line. Steps of "
    "the models are interleaved; the machine and the size differ from the paper's.",
)

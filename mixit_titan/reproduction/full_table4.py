"""Table 4 with the paper's architecture on a CPU, for fewer epochs: accuracy over epochs, and the
paper's end points. It does not run by default, as it takes about an hour on two cores."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mixit_titan.jobs.job import Result
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit
from mixit_titan.reproduction.figures import draw_lines
from mixit_titan.reproduction.jobs import Plan, task_point
from mixit_titan.reproduction.paper import TABLE_4, Table
from mixit_titan.reproduction.units import PERCENT
from mixit_titan.runtime.metrics import read_metrics

_KEYS, _BATCH = 512, 4096
_STEPS_PER_EPOCH = _KEYS**2 // _BATCH
_EPOCHS = (2, 4, 8, 16)
_PAPER_EPOCHS = "1250"
"""10,000 steps with batches of up to 32,768 pairs, as in the authors' script."""
_SETTINGS: dict[str, Any] = {
    **{"keys": _KEYS, "values": _KEYS, "vocab": 2 * _KEYS, "width": 128, "layers": 2, "heads": 4},
    **{"lr": 5e-3, "batch": _BATCH, "steps": _EPOCHS[-1] * _STEPS_PER_EPOCH, "warmup": 100},
    **{"weight_decay": 1e-4, "init_std": 0.02, "embedding_std": 0.02},
    "eval_every": _EPOCHS[0] * _STEPS_PER_EPOCH,
}


def _cells(plan: Plan) -> Cells:
    """One seed unless --seeds says otherwise; MixiT as in the authors' code."""
    plan = dataclasses.replace(plan, seeds=plan.seeds or 1)
    found: Cells = {}
    for variant in TABLE_4:
        own = {"recipe": "official", "std": None} if variant == "mixit" else {}
        runs = task_point(plan, "memorization", variant, **_SETTINGS, **own)
        jobs = tuple(dataclasses.replace(job, read=partial(_curve, job.read)) for job in runs)
        found[variant] = {
            str(epochs): Cell((jobs,), lambda result, n=epochs: result["curve"][n])
            for epochs in _EPOCHS
        }
    return found


def _curve(read: Callable[[Path], Result | None], folder: Path) -> Result | None:
    """The result with the accuracy after each epoch; a rehearsal repeats its only one."""
    result = read(folder)
    if result is None:
        return None
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if "accuracy" in line]
    at = {line["step"]: line["accuracy"] for line in lines}
    curve = {n: at.get(n * _STEPS_PER_EPOCH, result["accuracy"]) for n in _EPOCHS}
    return result | {"curve": curve}


_END_POINTS: Table = {row: {_PAPER_EPOCHS: found["accuracy"]} for row, found in TABLE_4.items()}

FULL_TABLE_4_EXHIBIT = Exhibit(
    id="table4_full",
    title="Table 4 at its own size: accuracy over epochs",
    row="model",
    column="epochs",
    units={"all": PERCENT},
    paper=_END_POINTS,
    claims=(),
    cells=_cells,
    draw=draw_lines,
    caption="Accuracy on 512 x 512 pairs at width 128 with 2 layers and 4 heads; diamonds: the "
    "paper, after about 1,250 epochs.",
    note=lambda plan: (
        "Weights and embeddings are initialized with standard deviation 0.02, and mixit has the "
        "official recipe, as in the authors' code. All variants share one learning rate and budget."
    ),
    by_default=False,
)

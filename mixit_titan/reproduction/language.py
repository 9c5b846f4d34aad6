"""Language models: Table 2, and Table 7 on the covariance between tokens."""

from functools import partial

from mixit_titan.data.shards import is_prepared, read_manifest
from mixit_titan.data.sources import STDLIB
from mixit_titan.jobs.job import Job, Result
from mixit_titan.json_form import COUNT
from mixit_titan.reproduction.claims import below, grows, grows_less, in_order
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit
from mixit_titan.reproduction.figures import draw_bars, draw_lines
from mixit_titan.reproduction.jobs import Plan, analysis, training
from mixit_titan.reproduction.paper import TABLE_2, TABLE_7
from mixit_titan.reproduction.units import COVARIANCE, NATS

_CPU_STEPS, _PAPER_STEPS = 300, 40_000
_CORPORA = {"WikiText-103": "paper_wikitext103", "FineWeb-edu": "paper_fineweb_edu"}


def _models(plan: Plan, variant: str, corpus: str = "WikiText-103") -> tuple[Job, ...]:
    """One for each seed."""
    make = _small if plan.scale == "cpu" else partial(_large, config=_CORPORA[corpus])
    return tuple(make(plan, variant, seed) for seed in range(plan.seeds))


def _small(plan: Plan, variant: str, seed: int) -> Job:
    """On this machine's text, by bytes unless it is prepared with another tokenizer."""
    text = plan.text or STDLIB
    steps = plan.steps or _CPU_STEPS
    own = ["--data.path", text, "--training.global_batch_size", "16"]
    own += ["--lr_scheduler.warmup_steps", str(min(40, steps)), "--checkpoint.interval", "100"]
    if is_prepared(text):
        own += ["--model.vocab", str(read_manifest(text).tokenizer.vocab_size)]
    settings = {"text": text, "flavor": "debug", "batch": 16}
    config = "debug_standard"
    return training(plan, config, variant, *own, seed=seed, steps=steps, settings=settings, nproc=1)


def _large(plan: Plan, variant: str, seed: int, *, config: str) -> Job:
    steps = plan.steps or _PAPER_STEPS
    settings = {"config": config, "flavor": "paper"}
    return training(plan, config, variant, seed=seed, steps=steps, settings=settings)


def _table_2(plan: Plan) -> Cells:
    def loss(variant: str, corpus: str) -> Cell:
        return Cell((_models(plan, variant, corpus),), lambda line: line["validation_loss"])

    columns = ["local text"] if plan.scale == "cpu" else [*_CORPORA]
    return {variant: {name: loss(variant, name) for name in columns} for variant in TABLE_2}


TABLE_2_EXHIBIT = Exhibit(
    id="table2",
    title="Table 2: language models",
    row="model",
    column="text",
    units={"all": NATS},
    paper=TABLE_2,
    claims=(in_order("table2.order", tuple(TABLE_2), NATS, rising=True),),
    cells=_table_2,
    draw=draw_bars,
    caption="Validation loss, lower is better, with the paper's as a black line. The texts, the "
    "tokens and the sizes differ: compare the order, not the values.",
)


def _table_7(plan: Plan) -> Cells:
    """Of untrained models as large as Table 2's MixiT, whose validation text they read."""
    run = _models(plan, "mixit")[0]
    folder = plan.out / "covariance" / run.folder.name
    job = analysis("covariance", run, folder, _COVARIANCE, _has_all_starts)
    return {
        variant: {
            layers: Cell(((job,),), lambda found, v=variant, n=int(layers): at_start(found, v, n))
            for layers in depths
        }
        for variant, depths in TABLE_7.items()
    }


_COVARIANCE = {"rows": [{"variant": str, "layers": COUNT, "trained": bool, "covariance": float}]}


def at_start(found: Result, variant: str, layers: int) -> float:
    return _starts(found)[variant, layers]


def _starts(found: Result) -> dict[tuple[str, int], float]:
    rows = [row for row in found["rows"] if not row["trained"]]
    return {(row["variant"], row["layers"]): row["covariance"] for row in rows}


def _has_all_starts(found: Result) -> bool:
    needed = {(variant, int(n)) for variant, depths in TABLE_7.items() for n in depths}
    return needed <= _starts(found).keys()


TABLE_7_EXHIBIT = Exhibit(
    id="table7",
    title="Table 7: covariance between the last states of different tokens",
    row="model",
    column="layers",
    units={"all": COVARIANCE},
    paper=TABLE_7,
    claims=(
        grows("table7.random", "random", 2, "depth", COVARIANCE),
        grows_less("table7.mixit", "mixit", "random", 2, "depth", COVARIANCE),
        below("table7.order", "mixit", "random", "depth", COVARIANCE),
    ),
    cells=_table_7,
    draw=draw_lines,
    caption="Mean over sequences and pairs of tokens; dashed: the paper's. Layer by layer, random "
    "attention makes all tokens alike; mixing does so far less.",
    note=lambda plan: (
        "The models are at their random start, as the size of the paper's values "
        "suggests: training makes all states far larger."
    ),
)

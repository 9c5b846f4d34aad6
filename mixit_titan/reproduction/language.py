"""Language models: Table 2, and Table 7 on the covariance between tokens."""

from mixit_titan.data.shards import is_prepared, read_manifest
from mixit_titan.data.sources import STDLIB
from mixit_titan.reproduction.claims import below, does_not_grow, grows, in_order
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit
from mixit_titan.reproduction.jobs import Job, Plan, analysis, training
from mixit_titan.reproduction.paper import TABLE_2, TABLE_7
from mixit_titan.reproduction.pictures import draw_bars, draw_lines
from mixit_titan.reproduction.units import COVARIANCE, NATS

_CPU_STEPS, _PAPER_STEPS = 300, 40_000
_CORPORA = {"WikiText-103": "paper_wikitext103", "FineWeb-edu": "paper_fineweb_edu"}
_LOCAL = "local text"


def _small(plan: Plan, variant: str, seed: int, layers: int) -> Job:
    """On this machine's text, by bytes unless it is prepared with another tokenizer."""
    text = plan.text or STDLIB
    steps = plan.steps or _CPU_STEPS
    own = ["--nproc", "1", "--data.path", text, "--model.layers", str(layers)]
    own += ["--training.global_batch_size", "16", "--lr_scheduler.warmup_steps"]
    own += [str(min(40, steps)), "--checkpoint.interval", "100"]
    if is_prepared(text):
        own += ["--model.vocab", str(read_manifest(text).tokenizer.vocab_size)]
    return training(
        plan,
        "debug_standard",
        variant,
        *own,
        seed=seed,
        steps=steps,
        settings={"text": text, "layers": layers, "flavor": "debug", "batch": 16},
    )


def _large(plan: Plan, config: str, variant: str, seed: int, layers: int) -> Job:
    return training(
        plan,
        config,
        variant,
        *("--model.layers", str(layers)),
        seed=seed,
        steps=plan.steps or _PAPER_STEPS,
        settings={"config": config, "layers": layers},
    )


def _table_2(plan: Plan) -> Cells:
    def seeds(column: str, variant: str) -> tuple[Job, ...]:
        if plan.scale == "cpu":
            return tuple(_small(plan, variant, seed, 4) for seed in range(plan.seeds))
        config = _CORPORA[column]
        return tuple(_large(plan, config, variant, seed, 12) for seed in range(plan.seeds))

    columns = [_LOCAL] if plan.scale == "cpu" else [*_CORPORA]
    return {
        variant: {
            column: Cell((seeds(column, variant),), lambda line: line["validation_loss"])
            for column in columns
        }
        for variant in TABLE_2
    }


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
    def covariance(variant: str, layers: int) -> Cell:
        if plan.scale == "cpu":
            run = _small(plan, variant, 0, layers)
        else:
            run = _large(plan, _CORPORA["WikiText-103"], variant, 0, layers)
        folder = plan.out / "covariance" / run.folder.name
        return Cell(((analysis("covariance", run, folder),),), _trained_covariance)

    depths = (2, 4, 8) if plan.scale == "cpu" else (2, 4, 8, 16, 32)
    return {
        variant: {str(layers): covariance(variant, layers) for layers in depths}
        for variant in TABLE_7
    }


def _trained_covariance(found: dict) -> float:
    (row,) = [row for row in found["rows"] if row["trained"]]
    return row["covariance"]


TABLE_7_EXHIBIT = Exhibit(
    id="table7",
    title="Table 7: covariance between the last states of different tokens",
    row="model",
    column="layers",
    units={"all": COVARIANCE},
    paper=TABLE_7,
    claims=(
        grows("table7.random", "random", 2, "depth", COVARIANCE),
        does_not_grow("table7.mixit", "mixit", 2, "depth", COVARIANCE),
        below("table7.order", "mixit", "random", "depth", COVARIANCE),
    ),
    cells=_table_7,
    draw=draw_lines,
    caption="Mean over sequences and pairs of tokens, after training; dashed: the paper's. Random "
    "layers make all tokens alike, MixiT does not.",
)

"""Language models: Table 2, and Table 7 on the covariance of tokens."""

import math
from functools import partial

from mixit_titan.data.bigram import bigram_loss
from mixit_titan.data.shards import is_prepared, read_manifest
from mixit_titan.data.sources import STDLIB
from mixit_titan.jobs.job import Job, Result
from mixit_titan.json_form import COUNT
from mixit_titan.model.shapes import find_flavor
from mixit_titan.reproduction.claims import Claim, Level
from mixit_titan.reproduction.comparisons import in_every, in_order
from mixit_titan.reproduction.exhibit import Cell, Cells, Exhibit
from mixit_titan.reproduction.figures import draw_bars, draw_lines
from mixit_titan.reproduction.jobs import Plan, analysis, training
from mixit_titan.reproduction.paper import TABLE_2, TABLE_7
from mixit_titan.reproduction.trends import below, grows, grows_less
from mixit_titan.reproduction.units import BITS_PER_BYTE, COVARIANCE, NATS, Unit

_CPU_STEPS, _PAPER_STEPS = 300, 40_000
_CORPORA = {"WikiText-103": "paper_wikitext103", "FineWeb-edu": "paper_fineweb_edu"}
SOURCES, _TEXT = "Python sources", "your text"


def _corpora(plan: Plan) -> list[str]:
    """The corpora: at cpu scale, Python's standard library, and --text if it is given."""
    if plan.scale == "paper":
        return [*_CORPORA]
    return [SOURCES, *([_TEXT] if plan.text else [])]


def models(plan: Plan, variant: str, corpus: str) -> tuple[Job, ...]:
    """The language models of a variant or a stack, one per seed."""
    if plan.scale == "cpu":
        make = partial(_small, text=plan.text if corpus == _TEXT else STDLIB)
    else:
        make = partial(_large, config=_CORPORA[corpus])
    return tuple(make(plan, variant, seed) for seed in plan.seeds_of("language model"))


def _small(plan: Plan, variant: str, seed: int, *, text: str) -> Job:
    """A small model on bytes, or on the tokens of a prepared text."""
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
    figure = "bits_per_byte" if plan.scale == "cpu" else "validation_loss"
    return {
        variant: {
            name: Cell((models(plan, variant, name),), lambda line: line[figure])
            for name in _corpora(plan)
        }
        for variant in TABLE_2
    }


def _about_table_2(plan: Plan) -> str:
    if plan.scale == "paper":
        return ""
    bigram = bigram_loss(STDLIB, seq_len=find_flavor("debug").seq_len, rows=-1)
    return (
        "Ours are bits per byte; the paper's are nats per token of the Llama 3 tokenizer. A "
        f"bigram table has {bigram / math.log(2):.3f} bits per byte on {SOURCES}: to be better, a "
        "model has to use more than the current byte."
    )


def _order(corpus: str, unit: Unit, standard: float, mixit: float) -> Claim:
    """The order of the losses, at levels that only a model that has learned something reaches."""
    levels = {"standard": standard, "mixit": mixit}
    needs = (Level(row, corpus, unit, most=most, if_there=True) for row, most in levels.items())
    order = "standard < frozen_qk < mixit"
    return in_order("table2.order", order, unit, column=corpus, needs=tuple(needs))


_UNITS = {"all": NATS, SOURCES: BITS_PER_BYTE, _TEXT: BITS_PER_BYTE}
_LEVELS = {
    **{corpus: (TABLE_2["standard"][corpus] / 0.9, TABLE_2["mixit"][corpus] / 0.9)
       for corpus in _CORPORA},
    **dict.fromkeys((SOURCES, _TEXT), (3.3, 4.0)),
}  # fmt: skip

TABLE_2_EXHIBIT = Exhibit(
    id="table2",
    title="Table 2: language models",
    row="model",
    column="text",
    units=_UNITS,
    paper=TABLE_2,
    claims=(
        in_every(
            "table2.order",
            {
                corpus: _order(corpus, _UNITS.get(corpus, NATS), *levels)
                for corpus, levels in _LEVELS.items()
            },
        ),
    ),
    cells=_table_2,
    draw=draw_bars,
    caption="Validation loss (lower is better); black lines, at paper scale: the paper. Texts, "
    "tokenizers and sizes differ from the paper's: compare the order, not the values.",
    note=_about_table_2,
)


def _table_7(plan: Plan) -> Cells:
    """The cells of Table 7, from untrained models of the size of Table 2's MixiT, which read its
    validation text."""
    jobs = tuple(
        analysis(
            "covariance",
            run,
            plan.out / "covariance" / run.folder.name,
            _COVARIANCE,
            _has_all_starts,
        )
        for run in models(plan, "mixit", _corpora(plan)[0])
    )
    return {
        variant: {
            layers: Cell((jobs,), lambda found, v=variant, n=int(layers): at_start(found, v, n))
            for layers in depths
        }
        for variant, depths in TABLE_7.items()
    }


_COVARIANCE = {"rows": [{"variant": str, "layers": COUNT, "trained": bool, "covariance": float}]}


def at_start(found: Result, variant: str, layers: int) -> float:
    """The covariance of a variant at initialization."""
    return _starts(found)[variant, layers]


def _starts(found: Result) -> dict[tuple[str, int], float]:
    rows = [row for row in found["rows"] if not row["trained"]]
    return {(row["variant"], row["layers"]): row["covariance"] for row in rows}


def _has_all_starts(found: Result) -> bool:
    needed = {(variant, int(n)) for variant, depths in TABLE_7.items() for n in depths}
    return needed <= _starts(found).keys()


TABLE_7_EXHIBIT = Exhibit(
    id="table7",
    title="Table 7: covariance between the last hidden states of different tokens",
    row="model",
    column="layers",
    units={"all": COVARIANCE},
    paper=TABLE_7,
    claims=(
        grows("table7.random", "random", 2, "depth", COVARIANCE),
        grows_less("table7.mixit", "mixit", "random", 2, "depth"),
        below("table7.order", "mixit", "random", "depth", COVARIANCE),
    ),
    cells=_table_7,
    draw=draw_lines,
    caption="Mean over sequences and pairs of tokens; dashed: the paper. With depth, random "
    "attention makes all tokens more similar; mixing does so far less.",
    note=lambda plan: (
        "The models are at initialization, as the size of the paper's values suggests: training "
        "makes all states far larger. These claims therefore require no learned level."
    ),
)

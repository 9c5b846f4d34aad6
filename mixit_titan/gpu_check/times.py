"""Section: times of the kernels beside those of attention, of the arithmetic, and of the model.

Arithmetic is FLOPs over the peak of the GPU; the model is that of model/speed.py, which `params`
prints.
"""

import dataclasses
from collections.abc import Iterator

from mixit_titan.gpu_check.check import NEEDS_A_GPU, Check, Verdict, failed, passed
from mixit_titan.gpu_check.process import Case, Ended
from mixit_titan.gpu_check.scale import Row
from mixit_titan.gpu_check.session import Session
from mixit_titan.kernels.tiles import source_of
from mixit_titan.model.accounting import mixer_flops
from mixit_titan.model.communication import Received
from mixit_titan.model.hardware import Gpu
from mixit_titan.model.memory import Step
from mixit_titan.model.shapes import Shape, find_flavor
from mixit_titan.model.speed import step_seconds
from mixit_titan.model.variants import VARIANTS

SECTION = "times"
WORKER = "mixit_titan.gpu_check.time_mixers"
MIXERS = {
    "stored": ("stored", False),
    "drawn": ("generated", False),
    "SDPA (flash)": ("sdpa", False),
    "stored, documents": ("stored", True),
    "drawn, documents": ("generated", True),
    "flex, documents": ("flex", True),
}
"""Name -> mixer, and whether rows are packed with documents."""
_SECONDS = 1200  # per case: torchtitan's flex attention tries many kernels


def times(session: Session) -> Iterator[Check]:
    """Yield a check for each layer and mixer."""
    rehearsal = session.scale.rehearsal
    cases, where = {}, {}
    for row in session.scale.rows:
        for name, (mixer, documents) in MIXERS.items():
            full = f"{row}: {name}"
            where[full] = (row, name)
            if mixer == "flex" and rehearsal:
                yield session.judged(SECTION, full, NEEDS_A_GPU)
            else:
                cases[full] = {"mixer": mixer, "documents": documents, **dataclasses.asdict(row)}
    yield from session.cases(
        SECTION, WORKER, cases, _SECONDS, lambda full, found: _judge(*where[full], found)
    )


def _judge(row: Row, name: str, found: Case | Ended) -> Verdict:
    figures = {"row": str(row), "mixer": name}
    if isinstance(found, Ended):
        return failed(found, **figures)
    taken = found["milliseconds"]
    if taken is None:
        return NEEDS_A_GPU._replace(said="needs a GPU to be timed: it ran once", figures=figures)
    return passed(f"{taken:.3f} ms", milliseconds=taken, **figures)


def arithmetic(row: Row, variant: str, peak: float) -> float:
    """Return the milliseconds of a layer's attention or mixing by arithmetic, forward and
    backward."""
    flops = sum(mixer_flops(_layer(row), VARIANTS[variant], row.length))
    return 1e3 * flops * row.length * row.batch / peak


def modeled(row: Row, mixer: str, gpu: Gpu) -> float:
    """Return the modeled milliseconds of a layer's mixer, forward and backward, with one document
    per row."""
    variant = VARIANTS["mixit" if mixer in ("stored", "generated") else "standard"]
    step, alone = Step(rows=row.batch, length=row.length), Received(weights=0, gradients=0)
    source = source_of(mixer, signs=False) if variant.mixes else None
    settings = {"source": source, "attention": "flex" if mixer == "flex" else "flash"}
    return 1e3 * step_seconds(_layer(row), variant, step, alone, gpu, **settings).mixers


def _layer(row: Row) -> Shape:
    return dataclasses.replace(find_flavor(row.flavor), layers=1)

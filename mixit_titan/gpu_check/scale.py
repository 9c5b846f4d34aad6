"""Everything that differs between a GPU node and a rehearsal."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mixit_titan.model.hardware import GPUS
from mixit_titan.model.shapes import FLAVORS

CONFIG = "160m_fineweb_edu"
"""The shipped config that is trained, estimated and measured."""
STEPS, SAVED = 30, 20
"""Steps of a run, and the step that one run is resumed from."""
VARIANTS = ("standard", "frozen_qk", "frozen_mlp", "mixit")

# Enough to see a curve in 30 steps, with a validation at the start, in the middle and at the end.
_SHORT = {
    "data.path": "synthetic",
    "training.steps": STEPS,
    "lr_scheduler.warmup_steps": 5,
    "validator.freq": 15,
    "validator.rows": 64,
    "metrics.log_freq": 1,
    "checkpoint.interval": SAVED,
}
_TOY = {
    "device": "cpu",
    "model.width": 64,
    "model.layers": 2,
    "model.heads": 2,
    "model.hidden": 128,
    "model.vocab": 512,
    "model.seq_len": 128,
    "training.global_batch_size": 8,
    "training.local_batch_size": 2,
    "validator.rows": 8,
    "compile.enable": "false",  # would take longer than everything else
    "data.workers": 0,
}


def _flavor_shapes() -> dict[str, tuple[int, int]]:
    """Return the heads and head width of all flavors, each pair once, under the names that have
    it."""
    names: dict[tuple[int, int], list[str]] = {}
    for name, shape in FLAVORS.items():
        names.setdefault((shape.heads, shape.head_dim), []).append(name)
    return {", ".join(named): pair for pair, named in names.items()}


@dataclass(frozen=True)
class Row:
    """One layer of a flavor, at a length and a batch size."""

    flavor: str
    length: int
    batch: int

    def __str__(self) -> str:
        return f"{self.flavor}, {self.length:,}, batch {self.batch}"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes of all sections. The defaults are those of a GPU node."""

    ranks: int
    """Ranks of the runs on "all GPUs"."""
    gpu: str = "H100"
    """The GPU that estimates are for (model/hardware.py)."""
    rehearsal: bool = False
    settings: Mapping[str, object] = field(default_factory=lambda: _SHORT)
    """What the runs change in the config."""
    async_mode: str = "async_with_pinned_mem"
    """How the large configs save. Pinned memory needs a GPU."""
    bench: Mapping[str, object] = field(default_factory=lambda: {"data.path": "synthetic"})
    """What the benchmark changes in the config."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Environment of the processes that call kernels themselves."""
    parity_shapes: Mapping[str, tuple[int, int]] = field(default_factory=_flavor_shapes)
    """Name -> heads and head width."""
    parity_lengths: tuple[int, ...] = (256, 1000, 2048, 8192)
    rows: tuple[Row, ...] = (
        Row("160m", 2048, 32),
        Row("160m", 8192, 8),
        Row("1b", 2048, 8),
        Row("8b", 2048, 4),
        Row("8b", 8192, 1),
    )
    """The layers that kernels are timed for."""

    def on(self, ranks: int) -> str:
        kind = "CPU rank" if self.rehearsal else "GPU"
        return f"{ranks} {kind}{'' if ranks == 1 else 's'}"


def on_gpus(count: int, device: str) -> Scale:
    """Return the scale of a node; the config's 256 sequences are divided among 1, 2, 4 or 8
    ranks."""
    known = [name for name in GPUS if name in device]
    ranks = max(n for n in (1, 2, 4, 8) if n <= count)
    return Scale(ranks=ranks, gpu=known[0] if known else Scale.gpu)


def rehearsal() -> Scale:
    """Return the scale of a rehearsal on the CPU."""
    return Scale(
        ranks=2,
        rehearsal=True,
        settings=_SHORT | _TOY,
        async_mode="async",
        bench={"data.path": "synthetic"} | _TOY,
        kernels={"TRITON_INTERPRET": "1"},
        parity_shapes={"toy": (2, 64), "toy, wide": (2, 128)},
        parity_lengths=(130,),
        rows=(Row("debug", 64, 1),),
    )

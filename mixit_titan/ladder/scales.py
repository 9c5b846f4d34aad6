"""The ladders that come with the project: sizes, budgets and stacks."""

from dataclasses import dataclass

from mixit_titan.data.sources import STDLIB
from mixit_titan.ladder.dial import Dial


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A ladder: what is trained, how large and for how long."""

    about: str
    """The first line of the report."""
    config: str
    """The file of train_configs that sets everything else."""
    dial: Dial
    depths: tuple[int, ...]
    stacks: tuple[str, ...]
    tokens_per_parameter: float
    """Training tokens per parameter of the rungs, which are one run per depth."""
    budgets: tuple[float, ...]
    """FLOPs of the IsoFLOP runs, which take several depths per budget."""
    vocab: int
    """The vocabulary, unless the text is a prepared folder, which has its own."""
    text: str
    validation_rows: int
    local_rows: int | None = None
    """Sequences per rank and forward pass; None: all of a step."""


_VARIANTS = ("standard", "frozen_qk", "frozen_mlp", "mixit")

SCALES = {
    "cpu": Scale(
        about="Toy scale: models of thousands of parameters, sized for two CPU cores in an hour. "
        "What holds here need not hold at the scale of useful models.",
        config="debug_standard",
        dial=Dial(
            aspect=16,
            head_width=16,
            seq_len=128,
            base_width=64,
            base_rate=8e-3,
            rows_per_layer=4,
        ),
        depths=(2, 3, 4, 5, 6),
        stacks=(*_VARIANTS, "mixit standard@last"),
        tokens_per_parameter=4,
        budgets=(1.6e11, 6e11, 2.4e12),
        vocab=320,  # bytes and the end of a document, rounded up to 64
        text=STDLIB,
        validation_rows=1024,
    ),
    "gpu": Scale(
        about="Small scale: up to 0.4 billion parameters in the layers, one GPU per run.",
        config="160m_fineweb_edu",
        dial=Dial(
            aspect=64,
            head_width=64,
            seq_len=2048,
            base_width=768,
            base_rate=6e-4,
            rows_per_layer=16,
            tied=True,
        ),
        depths=(4, 8, 12, 16, 20),
        stacks=(*_VARIANTS, "mixit*3 standard"),
        tokens_per_parameter=20,
        budgets=(1e17, 4e17, 1.6e18),
        vocab=128256,
        text="data/fineweb-edu-10bt",
        validation_rows=1024,
        local_rows=16,
    ),
}

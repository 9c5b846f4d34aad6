"""A point of a benchmark: a run, with the settings that its speed depends on most."""

from dataclasses import asdict, dataclass, field
from typing import Any

from mixit_titan.kernels.forms import Form
from mixit_titan.model.accounting import Counts, count
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack, read_stack


@dataclass(frozen=True, kw_only=True)
class Point:
    """What is measured for each variant; `read_point` (runs.py) makes it from the table of a
    run."""

    run: dict[str, Any] = field(default_factory=dict)
    """The run as a TOML file would describe it, without the variant."""
    ranks: int = 1
    data_parallel: int = 1
    """The number of ranks that have batches of their own."""
    shape: Shape
    """The length of the sequences, which may be below the model's longest."""
    seq_len: int
    batch: int
    """Sequences per step on each data-parallel rank."""
    microbatches: int = 1
    """Passes whose gradients a step accumulates."""
    dtype: str = "float32"
    """The dtype that products are computed in; trained weights are float32."""
    compile: bool = False
    ac: str = "none"
    """The mode of activation recomputation."""
    frozen: str = "sharded"
    """How FSDP2 keeps frozen weights."""
    graphs: bool = False
    documents: bool = False
    """Whether rows are packed with documents."""
    chunks: int = 1
    """Chunks in which the head and the loss are computed."""
    attention: str = "sdpa"
    form: Form = "stored"
    """The form of the mixing matrices."""

    @property
    def tokens(self) -> int:
        """Tokens per step on each data-parallel rank."""
        return self.batch * self.seq_len

    def stack(self, variant: str) -> Stack:
        """Return the stack of a variant, or of a stack as it is written."""
        return read_stack(variant, self.shape.layers)

    def counts(self, variant: str) -> Counts:
        """Return the counts of a variant's model at the length of the point."""
        return count(self.shape, self.stack(variant), seq_len=self.seq_len, form=self.form)

    def as_json(self) -> dict[str, Any]:
        """Return the settings that bench.json records."""
        return asdict(self)

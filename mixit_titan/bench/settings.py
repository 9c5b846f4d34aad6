"""A point of a benchmark: a run, and of its settings those that its speed depends on most."""

from dataclasses import asdict, dataclass, field
from typing import Any

from mixit_titan.kernels.forms import Form
from mixit_titan.model.accounting import Counts, count
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack, read_stack


@dataclass(frozen=True, kw_only=True)
class Point:
    """What is measured for each variant. `read_point` (runs.py) makes it from a run's table."""

    run: dict[str, Any] = field(default_factory=dict)
    """The run as a TOML file would say it, but for the variant."""
    ranks: int = 1
    data_parallel: int = 1
    """How many of the ranks have batches of their own."""
    shape: Shape
    """Sequences may be shorter than the model allows: `seq_len` is theirs."""
    seq_len: int
    batch: int
    """Sequences of a step, on each data-parallel rank."""
    microbatches: int = 1
    """Passes that a step accumulates the gradients of."""
    dtype: str = "float32"
    """What the products are computed in; trained weights are float32."""
    compile: bool = False
    ac: str = "none"
    """Recomputation of activations."""
    frozen: str = "sharded"
    """How FSDP2 keeps frozen weights."""
    graphs: bool = False
    documents: bool = False
    """Whether rows are packed with documents."""
    chunks: int = 1
    """Pieces in which the head and the loss are computed."""
    attention: str = "sdpa"
    form: Form = "stored"
    """Of the mixing matrices."""

    @property
    def tokens(self) -> int:
        """Tokens of a step, on each data-parallel rank."""
        return self.batch * self.seq_len

    def stack(self, variant: str) -> Stack:
        """That of a variant, or of a stack as it is written."""
        return read_stack(variant, self.shape.layers)

    def counts(self, variant: str) -> Counts:
        return count(self.shape, self.stack(variant), seq_len=self.seq_len, form=self.form)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

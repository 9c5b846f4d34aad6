"""A point of a benchmark: the shape, the batch, and how a step is run."""

from dataclasses import asdict, dataclass
from typing import Any, get_args

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.kernels.forms import Form
from mixit_titan.model.accounting import Counts, count
from mixit_titan.model.freezing import FrozenStorage
from mixit_titan.model.parallelize import Recomputation
from mixit_titan.model.shapes import Shape
from mixit_titan.model.storage import DTYPE_BYTES, choose_form
from mixit_titan.model.variants import find_variant


@dataclass(frozen=True, kw_only=True)
class Point:
    shape: Shape
    """Sequences are as long as the model allows: `shape.seq_len`."""
    batch: int
    """Sequences of a step, on each rank."""
    dtype: str = "float32"
    """What the products are computed in; trained weights are float32."""
    compile: bool = False
    ac: str = "none"
    """Activation checkpointing."""
    frozen: str = "sharded"
    """How FSDP2 keeps frozen weights, with many ranks."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError(f"--batch is {self.batch}: it must be at least 1")
        allowed = {"ac": get_args(Recomputation), "frozen": get_args(FrozenStorage)}
        for option, choices in (allowed | {"dtype": tuple(DTYPE_BYTES)}).items():
            if getattr(self, option) not in choices:
                raise unknown(f"--{option}", getattr(self, option), choices)

    @property
    def tokens(self) -> int:
        """Tokens of a step, on each rank."""
        return self.batch * self.shape.seq_len

    @property
    def form(self) -> Form:
        """Of the mixing matrices."""
        return choose_form("auto", self.shape, self.dtype)

    def counts(self, variant: str) -> Counts:
        return count(self.shape, find_variant(variant), form=self.form)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

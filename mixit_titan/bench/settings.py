"""A point of a benchmark: the shape, the batch, and how a step is run."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.frozen_storage import FrozenStorage
from mixit_titan.model.recomputation import Recomputation
from mixit_titan.model.shapes import Shape

Dtype = Literal["float32", "bfloat16"]


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
        allowed = {"dtype": Dtype, "ac": Recomputation, "frozen": FrozenStorage}
        for option, choices in allowed.items():
            if getattr(self, option) not in get_args(choices):
                raise unknown(f"--{option}", getattr(self, option), get_args(choices))

    @property
    def tokens(self) -> int:
        """Tokens of a step, on each rank."""
        return self.batch * self.shape.seq_len

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

"""What a program of the GPU's kernel (triton_mixing.py) works on, and what that costs. This file
does not need torch: `params` models the kernel's time from it.

A source is where a tile of A comes from: stored, or drawn as normals or signs.
"""

from dataclasses import dataclass
from typing import Literal

from mixit_titan.errors import ConfigError
from mixit_titan.kernels.forms import Form

Source = Literal["stored", "normals", "signs"]

# Drawing an element takes as long as a tensor core takes to multiply it by some 400 columns. So a
# tile is multiplied by as many columns as registers hold: an accumulator of 128 x 256 in 8 warps.
# It leaves no room for a second block on an SM, which would draw the same tile again for its half
# of the columns. By what ptxas reports of the bfloat16 kernels for sm_90, where none of them spills
# (benchmarks/sass.py).
WARPS = 8
LARGEST_GROUP = 8
"""Documents side by side in a group."""
_WIDEST = 256
_COLUMNS = {2: _WIDEST, 4: 64, 8: 32}  # by bytes per element of v
# Rows or columns of A in a step. In float32 there is no tensor core, and all products of a step are
# unrolled.
_STEP = {"normals": 32, "signs": 64, "stored": 64}
_STEP_FLOAT32 = {"normals": 16, "signs": 32, "stored": 16}
_STAGES = {"normals": 2, "signs": 2, "stored": 3}


@dataclass(frozen=True)
class Cost:
    """Instructions of one thread."""

    inside: float
    """For each element of A that it draws or loads."""
    edge: float
    """For each element of A in tiles that are masked: on the diagonal and at the ends of
    documents."""
    group: int
    """For a group of documents, apart from its tiles."""


COSTS: dict[tuple[Source, bool], Cost] = {
    ("normals", False): Cost(26.44, 30.38, 1223),
    ("normals", True): Cost(28.88, 32.69, 1288),
    ("signs", False): Cost(8.56, 13.56, 1287),
    ("signs", True): Cost(11.62, 15.47, 1381),
    ("stored", False): Cost(3.62, 4.31, 1147),
    ("stored", True): Cost(4.09, 5.19, 1182),
}
"""(source, transposed) -> cost, as benchmarks/sass.py counts it for sm_90, bfloat16, head width 64
and packed documents. benchmarks/h100.py compares it with what Triton compiles."""


def source_of(form: Form, *, signs: bool) -> Source:
    """Return where the kernel's tiles come from, for a form and a distribution."""
    if form != "generated":
        return "stored"
    return "signs" if signs else "normals"


def tiles(source: Source, width: int, itemsize: int, batch: int | None) -> dict[str, int]:
    """Return what a program works on: GROUP documents, or rows of a `batch`, of padded width side
    by side, and K rows or columns of A in a step."""
    check_width(width)
    padded = max(16, _power_of_two(width))
    group = min(LARGEST_GROUP, max(1, _COLUMNS[itemsize] // padded))
    if batch is not None:
        group = min(group, _power_of_two(batch))
    step = (_STEP if itemsize == 2 else _STEP_FLOAT32)[source]
    return {"WIDTH": width, "PADDED": padded, "GROUP": group, "K": step, "STAGES": _STAGES[source]}


def check_width(width: int) -> None:
    """Refuse heads that are too wide for a tile."""
    if width > _WIDEST:
        raise ConfigError(
            f"heads of width {width} are too wide for the mixing kernel of a GPU, which takes up "
            f"to {_WIDEST}: raise model.heads"
        )


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()

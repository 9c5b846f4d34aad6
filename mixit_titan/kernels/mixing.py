"""MixiT's mixing matrix A as a pure function of (seed, layer, head, i, j).

    A = I + std (W - mean(W))

W_ij is a standard normal, or +1 or -1 (`Noise`). mean(W) of row i is taken over what the row sees:
its prefix j <= i, or the complete row without causality. So each row of A sums to 1 (without
causality: of the complete A, not of a corner). Torch's generator is not used, and an
element is the same on every device, however the matrix is split.

Shapes: N heads, R rows, L columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from mixit_titan.kernels.philox import Word, normals, philox, uniform

Noise = Literal["gaussian", "sign"]

# The four words of one Philox call serve four neighboring 32-column strips of a row, so that a
# tiled kernel can use all four as complete tiles: column j takes word (j // 32) % 4. Such a group
# of columns takes 32 calls for normals; for signs it takes one, and column j takes bit j % 32.
STRIP = 32
GROUP = 4 * STRIP
# Counter word c3 is the layer; this bit separates the per-head draws from the matrix itself.
_HEAD_DOMAIN = 1 << 31
# Counters drawn at a time: as many as fit a CPU's cache, or on a GPU enough to fill it.
_CHUNK = {"cpu": 1 << 14, "cuda": 1 << 24}


@dataclass(frozen=True, kw_only=True)
class MatrixSpec:
    """Everything that A depends on, except for layer and head."""

    seed: int
    length: int
    """m: the rows and columns of A. A shorter sequence takes the top-left corner."""
    std_low: float
    std_high: float
    """Standard deviation of W: drawn once per head, uniform between the two."""
    identity: bool
    sink_head: bool
    """Head 0 is not random: half itself, half position 0."""
    causal: bool
    """Whether a row sees only the columns up to its own."""
    noise: Noise = "gaussian"
    """Distribution of W. `sign`: +std or -std, by one random bit each."""


def draw_words(
    noise: Noise, seed: int, layer: int, head: Word, rows: torch.Tensor, length: int
) -> tuple[torch.Tensor, ...]:
    """Return the generator's integers behind W[rows, :length]: four blocks of (rows, groups, 32),
    or of (rows, groups, 1) for signs.

    `head` can be a tensor of (N, 1, 1, 1), which comes first in the shape of the blocks.
    """
    groups = -(-length // GROUP)
    calls = STRIP if noise == "gaussian" else 1
    call = torch.arange(groups * calls, device=rows.device).view(1, groups, calls)
    return philox(seed, call, rows.view(-1, 1, 1), head, layer)


def draw_noise(
    noise: Noise, seed: int, layer: int, head: Word, rows: torch.Tensor, length: int
) -> torch.Tensor:
    """Return W[rows, :length] in float32, neither centered nor causal."""
    words = draw_words(noise, seed, layer, head, rows, length)
    strips = normals(words) if noise == "gaussian" else tuple(map(_signs, words))
    return torch.stack(strips, dim=-2).flatten(-3)[..., :length]


def _signs(word: torch.Tensor) -> torch.Tensor:
    """Turn (..., 1) into (..., 32): -1 where a bit is set, and 1 elsewhere."""
    return 1.0 - 2.0 * ((word >> torch.arange(STRIP, device=word.device)) & 1).to(torch.float32)


def head_stds(
    spec: MatrixSpec, layer: int, heads: Sequence[int], device: torch.device
) -> torch.Tensor:
    """Return the standard deviation of each head: std_low + u (std_high - std_low), u ~ U(0, 1)."""
    counter = torch.tensor(list(heads), device=device)
    zero = torch.zeros_like(counter)
    u = uniform(philox(spec.seed, zero, 0, counter, layer | _HEAD_DOMAIN)[0])
    return spec.std_low + u * (spec.std_high - spec.std_low)


def row_means(
    spec: MatrixSpec, layer: int, heads: Sequence[int], device: torch.device
) -> torch.Tensor:
    """Return mean(W) of each row: (N, m) in float32."""
    means_NL = torch.empty(len(heads), spec.length, device=device)
    for rows, columns in _chunks(spec, len(heads), device):
        noise_NRL = _noise(spec, layer, heads, rows, columns)
        means_NL[:, rows] = _means(noise_NRL, rows, spec.causal)
    return means_NL


def assemble(
    noise_NRL: torch.Tensor,
    means_NR: torch.Tensor,
    stds_N: torch.Tensor,
    heads: Sequence[int],
    rows: torch.Tensor,
    *,
    causal: bool,
    sink_head: bool,
    less_identity: bool,
) -> torch.Tensor:
    """Return std (W - mean(W)) of some rows, zero where they do not see. `less_identity`: a sink
    head, which is not I plus something, is returned minus the identity that will be added to all
    heads."""
    columns = torch.arange(noise_NRL.shape[-1], device=rows.device)
    diagonal_RL = columns == rows.unsqueeze(-1)
    a_NRL = stds_N.view(-1, 1, 1) * (noise_NRL - means_NR.unsqueeze(-1))
    if causal:
        a_NRL.masked_fill_(columns > rows.unsqueeze(-1), 0.0)
    if sink_head and 0 in heads:
        # Half on itself and half on position 0; row 0 holds only one half.
        sink_RL = 0.5 * (diagonal_RL | (columns == 0)) - float(less_identity) * diagonal_RL
        a_NRL[list(heads).index(0)] = sink_RL
    return a_NRL


def mixing_matrix(
    spec: MatrixSpec,
    layer: int,
    heads: Sequence[int],
    *,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Return A in float32, of shape (len(heads), m, m)."""
    device = torch.device(device)
    a_NLL = torch.zeros(len(heads), spec.length, spec.length, device=device)
    for rows, columns in _chunks(spec, len(heads), device):
        a_NLL[:, rows[0] : rows[-1] + 1, :columns] = draw_rows(spec, layer, heads, rows, columns)
    return a_NLL


def draw_rows(
    spec: MatrixSpec,
    layer: int,
    heads: Sequence[int],
    rows: torch.Tensor,
    columns: int,
    *,
    less_identity: bool = False,
) -> torch.Tensor:
    """Return A[rows, :columns] of (N, R, columns) in float32, or A - I. Causal rows see no more
    than `columns`."""
    noise_NRL = _noise(spec, layer, heads, rows, columns)
    a_NRL = assemble(
        noise_NRL,
        _means(noise_NRL, rows, spec.causal),
        head_stds(spec, layer, heads, rows.device),
        heads,
        rows,
        causal=spec.causal,
        sink_head=spec.sink_head,
        less_identity=spec.identity,
    )
    if spec.identity and not less_identity:
        a_NRL += torch.arange(columns, device=rows.device) == rows.unsqueeze(-1)
    return a_NRL


def _means(noise_NRL: torch.Tensor, rows: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return (N, R): the mean of what each row sees."""
    if not causal:
        return noise_NRL.mean(-1)
    columns = torch.arange(noise_NRL.shape[-1], device=rows.device)
    visible = noise_NRL.masked_fill(columns > rows.unsqueeze(-1), 0.0)
    return visible.sum(-1) / (rows + 1)


def _noise(
    spec: MatrixSpec, layer: int, heads: Sequence[int], rows: torch.Tensor, columns: int
) -> torch.Tensor:
    counter = torch.tensor(list(heads), device=rows.device).view(-1, 1, 1, 1)
    return draw_noise(spec.noise, spec.seed, layer, counter, rows, columns)


def _chunks(
    spec: MatrixSpec, heads: int, device: torch.device
) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield all rows in chunks, each with the columns that it sees."""
    counters = heads * -(-spec.length // GROUP) * STRIP  # behind one row of all heads
    size = max(1, _CHUNK[device.type] // counters)
    for first in range(0, spec.length, size):
        last = min(first + size, spec.length)
        rows = torch.arange(first, last, device=device)
        yield rows, last if spec.causal else spec.length

"""The mixers of layers in plain PyTorch, with a cache for each kind.

`past` is a cache of transformers, or None: its `update` takes the keys and values of new tokens and
a layer, and returns those of all tokens.

Shapes: B batch, T new tokens, L all tokens, D width, N heads, H head width.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mixit_titan.kernels.maps import map_rows, map_vectors
from mixit_titan.kernels.mixing import MatrixSpec, draw_rows

_DRAWN_AT_ONCE = 32  # rows of a matrix


class ScaledLinear(nn.Linear):
    """factor * (W x + b)"""

    def __init__(self, fan_in: int, fan_out: int, *, bias: bool, factor: float) -> None:
        super().__init__(fan_in, fan_out, bias=bias)
        self.factor = factor

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The scaled linear map."""
        return self.factor * super().forward(input)


def linear(config: dict[str, Any], fan_in: int, fan_out: int) -> ScaledLinear:
    """A linear of the model, with the bias and the factor of its config."""
    return ScaledLinear(fan_in, fan_out, bias=config["bias"], factor=config["linear_factor"])


@dataclass(frozen=True)
class Places:
    """Where the tokens of a batch are. New tokens are in the columns from `first` to `end`."""

    first: int
    end: int
    positions_BL: torch.Tensor
    """Counted without padding; a single row for all sequences if there is no padding."""
    real_BL: torch.Tensor | None
    """Which columns are not padding; None: all of them."""

    def near(self, window: int | None) -> torch.Tensor:
        """(B or 1, T, L): which keys each new query attends to. Padding attends to itself, because
        a softmax over nothing is not a number."""
        columns_L = torch.arange(self.end, device=self.positions_BL.device)
        rows_T1 = columns_L[self.first :].unsqueeze(1)
        seen = (columns_L <= rows_T1).unsqueeze(0)
        if window is not None:
            new_BT1 = self.positions_BL[:, self.first :].unsqueeze(2)
            seen = seen & (new_BT1 - self.positions_BL.unsqueeze(1) < window)
        if self.real_BL is not None:
            seen = seen & self.real_BL.unsqueeze(1) | (columns_L == rows_T1)
        return seen


class Attention(nn.Module):
    """Softmax attention with rotary embeddings, over a window of the last tokens if there is one.
    The cache holds keys and values."""

    def __init__(self, config: dict[str, Any], layer: int, window: int | None) -> None:
        super().__init__()
        width, heads = config["hidden_size"], config["num_attention_heads"]
        self.layer, self.window, self.head_width = layer, window, width // heads
        self.rope, groups = config["rope_parameters"], config["num_key_value_heads"]
        sizes = {"wq": width, "wk": groups * self.head_width, "wv": groups * self.head_width}
        self.qkv_linear = nn.ModuleDict({k: linear(config, width, n) for k, n in sizes.items()})
        self.wo = linear(config, width, width)

    def forward(self, x_BTD: torch.Tensor, places: Places, past: Any) -> torch.Tensor:
        """Attention of new tokens to all tokens."""
        q_BNTH, k_BNTH, v_BNTH = (
            projection(x_BTD).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for projection in self.qkv_linear.values()
        )
        angles = self._angles(places.positions_BL[:, places.first :]).unsqueeze(1)
        q_BNTH, k, v = _turn(q_BNTH, angles), _turn(k_BNTH, angles), v_BNTH
        if past is not None:
            k, v = past.update(k, v, self.layer)
        seen = places.near(self.window).unsqueeze(1)
        out_BNTH = F.scaled_dot_product_attention(q_BNTH, k, v, attn_mask=seen, enable_gqa=True)
        return self.wo(out_BNTH.transpose(1, 2).flatten(2))

    def _angles(self, positions_BT: torch.Tensor) -> torch.Tensor:
        """Rotary angles, (B, T, H / 2), with Llama 3.1's scaling of low frequencies where there is
        one."""
        rope, size = self.rope, self.head_width
        steps = torch.arange(0, size, 2, device=positions_BT.device).float()
        frequency = 1.0 / rope["rope_theta"] ** (steps / size)
        if rope["rope_type"] == "llama3":
            turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
            low, high = rope["low_freq_factor"], rope["high_freq_factor"]
            fast = ((turns - low) / (high - low)).clamp(0, 1)
            frequency = fast * frequency + (1 - fast) * frequency / rope["factor"]
        return positions_BT.unsqueeze(-1) * frequency


def _turn(x_BNTH: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """(a, b) -> (a cos - b sin, b cos + a sin), a and b the halves of a head."""
    a, b = x_BNTH.float().chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x_BNTH)


class Mixing(nn.Module):
    """wo(A (wv x)), with an A that depends on positions and not on x. The cache holds values."""

    def __init__(self, config: dict[str, Any], layer: int, matrix: nn.Module) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.wv, self.wo = (linear(config, width, width) for _ in range(2))
        self.heads, self.layer = config["num_attention_heads"], layer
        self.inner_attention = matrix

    def forward(self, x_BTD: torch.Tensor, places: Places, past: Any) -> torch.Tensor:
        """Mixing of new tokens with all tokens."""
        v_BNTH = self.wv(x_BTD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v_BNLH = v_BNTH
        if past is not None:
            # A cache counts keys. There are none, so one number per token takes their place.
            _, v_BNLH = past.update(v_BNTH[:, :1, :, :1], v_BNTH, self.layer)
        out_BNTH = self._rows(places).to(v_BNTH) @ v_BNLH
        if self.inner_attention.less_identity:
            out_BNTH = out_BNTH + v_BNTH
        return self.wo(out_BNTH.transpose(1, 2).flatten(2))

    def _rows(self, places: Places) -> torch.Tensor:
        """(N, T, L), or (B, N, T, L) where padding shifts the tokens."""
        positions_BL, rows = places.positions_BL, self.inner_attention.rows
        if places.real_BL is None:
            return rows(places.first, places.end, positions_BL.device)
        new_BT = positions_BL[:, places.first :]
        first, end = int(new_BT.min()), int(positions_BL.max()) + 1
        a_NTL = rows(first, end, positions_BL.device)
        a_NBTL = a_NTL[:, (new_BT - first).unsqueeze(2), positions_BL.unsqueeze(1)]
        return (a_NBTL * places.real_BL.unsqueeze(1)).transpose(0, 1)


class Matrix(nn.Module):
    """The matrix A of one layer: `rows(first, end, device)` is A[first:end, :end], (N or 1, T,
    L)."""

    less_identity = False
    """Whether the rows lack an identity that belongs to A: in bfloat16 it would drown the rest."""


class RandomMatrix(Matrix):
    """MixiT's matrix, drawn from its seed as far as sequences need it, and cached."""

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        self.heads, self.layer = range(config["num_attention_heads"]), layer
        self.spec = MatrixSpec(**config["mixing"])
        self.less_identity = self.spec.identity
        self.drawn_NLL = torch.empty(len(self.heads), 0, 0, device="cpu")

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        """Rows of A, drawn first if necessary."""
        have = self.drawn_NLL.shape[1]
        if end > have:
            self._draw(min(max(end, 2 * have), self.spec.length))
        self.drawn_NLL = self.drawn_NLL.to(device)
        return self.drawn_NLL[:, first:end, :end]

    @torch.inference_mode(False)  # the cached rows may later be used in training
    def _draw(self, size: int) -> None:
        """Extend the matrix. A row does not depend on later rows, so existing rows stay."""
        have = self.drawn_NLL.shape[1]
        parts = [F.pad(self.drawn_NLL, (0, size - have)).cpu()]
        for rows in torch.arange(have, size).split(_DRAWN_AT_ONCE):
            seen = int(rows[-1]) + 1
            settings = {"less_identity": self.less_identity}
            drawn_NTL = draw_rows(self.spec, self.layer, self.heads, rows, seen, **settings)
            parts.append(F.pad(drawn_NTL, (0, size - seen)))
        self.drawn_NLL = torch.cat(parts, dim=1)


class LearnedMatrix(Matrix):
    """A trained parameter, of which the lower triangle is used."""

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        length = config["max_position_embeddings"]
        size = (config["num_attention_heads"], length, length)
        self.weight = nn.Parameter(torch.zeros(size))

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        """Rows of the lower triangle."""
        return self.weight[:, first:end, :end].tril(first)


class FixedMaps(Matrix):
    """Softmax maps of random vectors for each position, drawn from a seed."""

    def __init__(self, config: dict[str, Any], layer: int) -> None:
        super().__init__()
        heads, length = config["num_attention_heads"], config["max_position_embeddings"]
        self.size = (heads, length, config["hidden_size"] // heads)
        self.seed, self.layer = config["mixing_seed"], layer
        self.vectors: tuple[torch.Tensor, ...] = ()

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        """Rows of the maps."""
        if not self.vectors:
            with torch.inference_mode(False):
                self.vectors = map_vectors(self.seed, self.layer, self.size, torch.device("cpu"))
        self.vectors = tuple(vectors.to(device) for vectors in self.vectors)
        return map_rows(*self.vectors, first, end)


class Sums(Matrix):
    """The lower triangle of ones: each token takes the sum over all tokens up to itself, or their
    mean."""

    def __init__(self, *, mean: bool) -> None:
        super().__init__()
        self.mean = mean

    def rows(self, first: int, end: int, device: torch.device) -> torch.Tensor:
        """Rows of the triangle."""
        i = torch.arange(first, end, device=device).unsqueeze(1)
        a_TL = (torch.arange(end, device=device) <= i).float()
        return (a_TL / (i + 1) if self.mean else a_TL).unsqueeze(0)


MATRICES = {
    "mixing": RandomMatrix,
    "learned": LearnedMatrix,
    "embedding": FixedMaps,
    "uniform": lambda config, layer: Sums(mean=True),
    "linear": lambda config, layer: Sums(mean=False),
}
ATTENDING = ("attention", "window")


def build_mixer(config: dict[str, Any], layer: int) -> nn.Module:
    """The mixer that config.json names for a layer."""
    name = config["mixers"][layer]
    if name in ATTENDING:
        return Attention(config, layer, config["window"] if name == "window" else None)
    return Mixing(config, layer, MATRICES[name](config, layer))

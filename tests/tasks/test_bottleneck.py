"""The head of `mad_compression`: everything is decoded from one hidden state."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mixit_titan.analysis.untrained import body
from mixit_titan.model.llama import MixitLlama
from mixit_titan.tasks.bottleneck import BottleneckDecoder, sines
from mixit_titan.tasks.models import build_model
from mixit_titan.tasks.trained import load_trained_task
from tests.tasks.conftest import make_run


class Fixed(nn.Module):
    """A body whose hidden states are given."""

    def __init__(self, h_BLD: torch.Tensor) -> None:
        super().__init__()
        self.h_BLD = h_BLD

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.h_BLD


def test_only_the_last_state_is_decoded() -> None:
    h_BLD = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    changed = h_BLD.clone()
    changed[:, :-1] += 1
    tokens = torch.zeros(2, 5, dtype=torch.long)
    made = {"width": 8, "tokens": 7, "positions": 5, "seed": 0}
    out, same = (BottleneckDecoder(Fixed(h), **made)(tokens) for h in (h_BLD, changed))
    assert out.shape == (2, 5, 7) and torch.equal(out, same)
    changed[:, -1] += 1
    other = BottleneckDecoder(Fixed(changed), **made)(tokens)
    assert (other - out).abs().amax(-1).min() > 1e-3
    # Positions tell the answers apart, and the seed the initial weights.
    assert (out[:, 1:] - out[:, :-1]).abs().amax(-1).min() > 1e-3
    assert not torch.equal(BottleneckDecoder(Fixed(h_BLD), **made | {"seed": 1})(tokens), out)


def test_the_decoder_is_the_formula() -> None:
    """Two layers of norm, linear and gelu, then norm and unembedding, in plain numbers."""
    h = [0.5, -1.0]
    model = BottleneckDecoder(
        Fixed(torch.tensor([[[9.0, 9.0], h]])), width=2, tokens=3, positions=2, seed=0
    ).double()
    model.body.h_BLD = model.body.h_BLD.double()
    weights = {name: param.tolist() for name, param in model.decoder.named_parameters()}

    def norm(x: list[float], name: str) -> list[float]:
        size = math.sqrt(sum(v * v for v in x) / len(x) + torch.finfo(torch.float64).eps)
        return [v / size * g for v, g in zip(x, weights[f"{name}.weight"], strict=True)]

    def linear(x: list[float], name: str) -> list[float]:
        rows, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return [
            sum(w * v for w, v in zip(row, x, strict=True)) + b
            for row, b in zip(rows, bias, strict=True)
        ]

    out = model(torch.zeros(1, 2, dtype=torch.long))[0].tolist()
    for place in (0, 1):
        x = [h[0] + math.sin(place), h[1] + math.cos(place)]
        for first in (0, 3):
            x = linear(norm(x, str(first)), str(first + 1))
            x = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x]
        assert out[place] == pytest.approx(linear(norm(x, "6"), "7"), abs=1e-6)


def test_positions_are_sines_and_cosines_of_falling_frequencies() -> None:
    found = sines(50, 6)
    for place in (0, 1, 49):
        angles = [place * 10_000**-power for power in (0, 0.5, 1)]
        row = [*map(math.sin, angles), *map(math.cos, angles)]
        assert found[place].tolist() == pytest.approx(row, abs=1e-5)


@pytest.mark.parametrize("variant", ["standard", "mixit", "lstm"])
def test_every_trained_part_of_a_model_gets_a_gradient(variant: str) -> None:
    model = build_model(make_run("mad_compression", f"--length 6 --variant {variant}"))
    model(torch.randint(0, 15, (4, 6))).square().sum().backward()
    for name, param in model.named_parameters():
        assert not param.requires_grad or param.grad.abs().sum() > 0, name


def test_a_compressed_sequence_comes_back_and_so_does_its_model(
    fit: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    words = "--variant mixit --length 3 --width 32 --heads 4 --lr 5e-3 --batch 64 --steps 400 "
    words += "--eval-every 200 --test 20"
    run = make_run("mad_compression", words)
    result = fit(run)
    assert result["accuracy"] > 0.9
    loaded, model = load_trained_task(tmp_path / "run")
    assert loaded == run and isinstance(model, BottleneckDecoder)
    assert isinstance(body(model), MixitLlama)

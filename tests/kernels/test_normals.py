"""The normals of a GPU, whose logarithm, root, sine and cosine are approximate, are a CPU's.

No GPU is here. What triton_noise.py computes is done again in float32, each approximate function
off by the largest error that NVIDIA's PTX manual gives it, in the direction that does most harm.
"""

import itertools
import math

import pytest
import torch

from mixit_titan.kernels.philox import normals, philox, uniform

# Largest errors of lg2.approx (absolute within (0.5, 2), else relative), sqrt.approx (relative) and
# of sin.approx and cos.approx (absolute, to half a turn either way).
LG2, SQRT, TURN = 2.0**-22, 2.0**-23, 2.0**-20.5


def approximate(
    first: torch.Tensor, second: torch.Tensor, up: float, outward: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """triton_noise._pair, with a logarithm and root off by `up`, and a turn off by `outward`, times
    their largest errors."""
    u = uniform(first).clamp_min(1.0e-7)
    exact = torch.log2(u.double())
    log = exact + up * LG2 * torch.where(u > 0.5, 1.0, exact.abs())
    log = torch.where(u > 1 - 2.0**-12, (u - 1) * 1.4426950408889634, log.float())
    square = log * torch.tensor(-1.3862943611198906)
    # A logarithm that is too large makes a root that is too small.
    radius = (torch.sqrt(square.clamp_min(0).double()) * (1 - up * SQRT)).float()
    angle = uniform(second).double() * float(torch.tensor(math.tau)) - float(torch.tensor(math.pi))
    angle = angle.float().double()
    turns = [turn + outward * TURN * turn.sign() for turn in (torch.cos(angle), torch.sin(angle))]
    return tuple(-radius * turn.float() for turn in turns)


def words() -> torch.Tensor:
    """Pairs of words: millions of drawn ones, and the edges of either with those of the other."""
    drawn = torch.stack(philox(11, torch.arange(1 << 20), 3, 1, 4))
    drawn = torch.cat([drawn[:2], drawn[2:]], dim=1)
    near = torch.arange(300)
    # Around 0 and 1 (the words fold in the middle), 1e-7, 1/2, 1 - 2**-12, and quarters of a turn.
    fractions = (0.0, 1e-7, 0.25, 0.5, 0.75, 1 - 2.0**-12, 1 - 2.0**-11)
    edges = [near + int(f * 2**31) for f in fractions] + [2**31 - 1 - near, 2**31 + near]
    edges = torch.cat([*edges, 2**32 - 1 - near])
    return torch.cat([drawn, torch.cartesian_prod(edges, edges).T], dim=1)


@pytest.mark.parametrize(("up", "outward"), list(itertools.product((-1, 1), (-1, 1))))
def test_approximate_normals_are_the_cpus_within_a_hundred_thousandth(
    up: float, outward: float
) -> None:
    first, second = words()
    assert len(first) > 9_000_000
    exact = normals([first, second, first[:1], second[:1]])[:2]
    for ours, theirs in zip(approximate(first, second, up, outward), exact, strict=True):
        assert float((ours - theirs).abs().max()) < 1e-5


def test_without_care_near_one_they_would_not_be() -> None:
    """The radius of a word next to 1 is the root of little more than the logarithm's error."""
    u = uniform(torch.tensor([2**31 - 200]))
    log = torch.log2(u.double()) - LG2
    radius = torch.sqrt(-2 * math.log(2) * log)
    assert float((radius - torch.sqrt(-2 * torch.log(u))).abs()) > 1e-4

import dataclasses
import hashlib
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mixit_titan.kernels.named_normals import _AT_A_TIME, draw_normal
from mixit_titan.kernels.philox import normals, philox
from mixit_titan.model.build import llama_config
from mixit_titan.model.shapes import find_flavor
from mixit_titan.model.variants import find_variant

from .conftest import TINY, build


def test_an_element_is_a_word_of_its_own_counter() -> None:
    name = "layers.3.attention.wo.weight"
    drawn = draw_normal(11, name, torch.Size((300, 257)), torch.device("cpu")).flatten()
    words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], dtype="<u4")
    for element in (0, 1, 6, 77099):
        counter = torch.tensor([element // 4])
        block = normals(philox(11, counter, 0, int(words[0]), int(words[1])))
        assert drawn[element] == block[element % 4][0]


def test_weights_have_their_standard_deviation_and_no_two_are_alike() -> None:
    model = build("standard", shape=dataclasses.replace(TINY, init_std=0.02))
    weights = {name: p for name, p in model.named_parameters() if "norm" not in name}
    for name, weight in weights.items():
        expected = 1.0 if "tok_embeddings" in name else 0.02
        assert abs(weight.std().item() / expected - 1) < 5 / np.sqrt(2 * weight.numel()), name
    first = [
        round(float(weight.detach().flatten()[0]) / weight.std().item(), 4)
        for weight in weights.values()
    ]
    assert len(set(first)) == len(first)


def test_weights_do_not_depend_on_the_global_generator_or_the_order() -> None:
    torch.manual_seed(1)
    first = build("frozen_qk")
    torch.manual_seed(2)
    second = build("standard")
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b), name
    # Weights that two variants share by name are the same too.
    mixing = build("mixit")
    assert torch.equal(
        mixing.layers["1"].feed_forward.w1.weight, first.layers["1"].feed_forward.w1.weight
    )


class Launches(TorchDispatchMode):
    """Counts operators: on a GPU each is a launch, or several."""

    count = 0

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_gpu_draws_8b_in_a_hundred_thousand_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second, at 5 microseconds each. In the chunks of a CPU it would be 5 million."""
    device, shape = torch.device("cpu"), torch.Size((4 * 512,))
    with Launches() as one:
        draw_normal(0, "name", shape, device)
    monkeypatch.setitem(_AT_A_TIME, "cpu", 256)
    with Launches() as two:
        draw_normal(0, "name", shape, device)
    each = two.count - one.count  # of a chunk more
    assert each > 50
    with torch.device("meta"):
        model = llama_config(find_flavor("8b"), find_variant("standard"), on_gpu=True).build()
    sizes = [param.numel() for param in model.parameters()]
    assert sum(sizes) > 7e9
    assert sum(each * math.ceil(size / 4 / _AT_A_TIME["cuda"]) for size in sizes) < 150_000
    assert sum(each * math.ceil(size / 4 / 2**16) for size in sizes) > 3e6

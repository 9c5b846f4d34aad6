"""Every mixer of the registry: its formula in NumPy, what it sees, its cache, its count."""

import dataclasses
import importlib
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import count, weights
from mixit_titan.model.build import llama_config
from mixit_titan.model.decoding import Decoder
from mixit_titan.model.freezing import freeze
from mixit_titan.model.identity import identity, saved_stack
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.mixers.registry import MIXERS
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.stack import read_stack, uniform
from mixit_titan.model.variants import VARIANTS

from .conftest import TINY, build
from .numpy_philox import initial_normals
from .test_documents import POSITIONS, documents

SHAPE = dataclasses.replace(TINY, window=5)
POSITIONAL = ["learned", "uniform", "linear", "embedding"]
NEW = [*POSITIONAL, "window"]
HEADS, HEAD, LENGTH = 4, 8, 24
STACKS = [*MIXERS, "window learned", "embedding standard", "uniform mixit"]


def test_the_registry_is_what_stacks_are_made_of() -> None:
    assert set(MIXERS) == {"attention", "mixing", *NEW}
    for mixer in MIXERS:
        assert read_stack(mixer, 2) == uniform(mixer)
        file = importlib.import_module(f"mixit_titan.model.mixers.{mixer}")
        assert callable(file.inner) and len(file.__doc__.splitlines()) > 3


def test_the_mixer_of_the_docs_takes_the_token_before() -> None:
    page = (Path(__file__).parents[2] / "docs" / "own_mixer.md").read_text()
    code = re.search(r"previous.py`:\n\n((?:    .*\n|\n)+)", page)[1]
    scope = {"__name__": __name__}
    exec(textwrap.dedent(code), scope)
    rows = scope["Previous"].rows(None, 0, 3, torch.device("cpu"))
    assert (rows @ torch.tensor([6.0, 2.0, 1.0])).tolist() == [[0, 6, 2]]


def inner(mixer: str, shape: object = SHAPE) -> nn.Module:
    """The inner module of the last layer of a model."""
    return build(mixer, shape=shape, mixing_seed=5).layers["1"].attention.inner_attention


def numpy_matrix(mixer: str) -> np.ndarray:
    """A of layer 1, (N, m, m)."""
    m = LENGTH
    seen = np.tri(m)
    if mixer == "uniform":
        a = seen / seen.sum(1, keepdims=True)
    elif mixer == "linear":
        a = seen
    elif mixer == "learned":  # as it starts
        theirs = build("mixit", shape=SHAPE, mixing_seed=5).layers["1"].attention.inner_attention
        a = theirs.matrix[:, :, :m].numpy().astype(np.float64) * seen
        return a if a.ndim == 3 else a[None]
    else:
        q, k = (initial_normals(5, f"layers.1.maps.{x}", (HEADS, m, HEAD)) for x in "qk")
        scores = np.where(seen > 0, q @ k.swapaxes(1, 2) / np.sqrt(HEAD), -np.inf)
        shares = np.exp(scores)
        return shares / shares.sum(2, keepdims=True)
    return np.broadcast_to(a, (HEADS, m, m))


@pytest.mark.parametrize("mixer", POSITIONAL)
def test_the_product_is_that_of_numpy(mixer: str) -> None:
    v = np.random.default_rng(0).standard_normal((3, LENGTH, HEADS, HEAD))
    a = numpy_matrix(mixer)
    module, values = inner(mixer), torch.from_numpy(v).float()
    with torch.no_grad():
        alone, packed = module(values).numpy(), module(values, positions=POSITIONS).numpy()
    np.testing.assert_allclose(alone, np.einsum("nij,bjnh->binh", a, v), atol=2e-5)
    for row, place in documents():
        size = place.stop - place.start
        expected = np.einsum("nij,jnh->inh", a[:, :size, :size], v[row, place])
        np.testing.assert_allclose(packed[row, place], expected, atol=2e-5)


def test_a_window_sees_the_last_tokens_of_its_document() -> None:
    draw = np.random.default_rng(1)
    q, k, v = (draw.standard_normal((1, 12, HEADS, HEAD)) for _ in range(3))
    positions = torch.tensor([[*range(7), *range(5)]])
    mask = (positions.cumsum(1) * 0 + torch.tensor([[0] * 7 + [1] * 5])).squeeze()
    same = (mask[:, None] == mask[None, :]).numpy()
    module = inner("window")
    tensors = [torch.from_numpy(x).float() for x in (q, k, v)]
    within = torch.from_numpy(same)[None, None] & torch.ones(12, 12, dtype=torch.bool).tril()
    for masks, allowed in ((None, np.ones((12, 12), bool)), (within, same)):
        found = module(*tensors, attention_masks=masks).numpy()
        for i in range(12):
            seen = [j for j in range(max(0, i - 4), i + 1) if allowed[i, j]]
            scores = np.einsum("nh,jnh->nj", q[0, i], k[0, seen]) / np.sqrt(HEAD)
            shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
            expected = np.einsum("nj,jnh->nh", shares, v[0, seen])
            np.testing.assert_allclose(found[0, i], expected, atol=1e-5)


def model(stack: str) -> MixitLlama:
    """With a learned matrix of which no element is zero: it starts as a lower triangle."""
    found = build(stack, shape=SHAPE)
    for name, weight in found.named_parameters():
        if name.endswith("inner_attention.weight"):
            nn.init.normal_(weight, std=0.2, generator=torch.Generator().manual_seed(3))
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_a_token_changes_no_output_before_it_and_none_of_another_document(
    stack: str, tokens: torch.Tensor
) -> None:
    ours, changed = model(stack), tokens.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 50
    packed = torch.tensor([*range(8), *range(9), *range(7)]).expand(2, -1)
    with torch.no_grad():
        moved = (ours(tokens) - ours(changed)).abs().amax(-1) > 0
        assert not moved[:, :10].any() and moved[:, 10:].any(1).all()
        moved = (ours(tokens, packed) - ours(changed, packed)).abs().amax(-1) > 0
        assert not moved[:, :10].any() and not moved[:, 17:].any() and moved[:, 10:17].any()
        assert moved[:, 10].all()  # itself
        alone = ours(tokens[:, 8:17])
        torch.testing.assert_close(ours(tokens, packed)[:, 8:17], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stack", STACKS)
def test_no_gradient_comes_from_a_later_token_or_another_document(
    stack: str, tokens: torch.Tensor
) -> None:
    """Of one output, by each place of the input: exactly zero outside of its document's past."""
    ours = model(stack)
    packed = torch.tensor([*range(8), *range(9), *range(7)]).expand(2, -1)
    for positions, first in ((None, 0), (packed, 8)):
        found: list[torch.Tensor] = []

        def keep(*seen: torch.Tensor, found: list[torch.Tensor] = found) -> None:
            found.append(seen[-1])
            seen[-1].retain_grad()

        hook = ours.tok_embeddings.register_forward_hook(keep)
        ours(tokens, positions)[:, 12].logsumexp(-1).sum().backward()
        hook.remove()
        reached = found[0].grad.abs().amax(-1) > 0
        assert not reached[:, :first].any() and not reached[:, 13:].any()
        assert reached[:, 9:13].all()  # which even a window of 5 sees


@pytest.mark.parametrize("stack", STACKS)
def test_decoding_with_a_cache_gives_the_logits_of_the_model(
    stack: str, tokens: torch.Tensor
) -> None:
    ours = model(stack)
    decoder = Decoder(ours)
    steps = [decoder.step(tokens[:, :7])]
    steps += [decoder.step(tokens[:, n : n + 1]) for n in range(7, LENGTH)]
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(steps, 1), ours(tokens), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("stack", [*STACKS, "learned-freeze-matrix"])
def test_the_count_is_that_of_the_model(stack: str) -> None:
    ours, read = model(stack), read_stack(stack, 2)
    freeze(ours, read)
    by_name = {name: (p.numel(), p.requires_grad) for name, p in ours.named_parameters()}
    assert {w.name: (w.elements, w.trained) for w in weights(SHAPE, read)} == by_name
    assert saved_stack(identity(ours.config), 2) == read


def test_flops_by_hand() -> None:
    """Per token and layer at width n and length m, beside those of the linears."""
    n, m = SHAPE.width, SHAPE.seq_len
    mixit, standard = count(SHAPE, VARIANTS["mixit"]), count(SHAPE, VARIANTS["standard"])
    learned = count(SHAPE, uniform("learned"))
    assert learned.flops_forward == mixit.flops_forward
    assert learned.flops_backward == mixit.flops_backward + 2 * m * n
    assert learned.trainable == mixit.trainable + 2 * HEADS * m * m
    assert count(SHAPE, uniform("linear")).flops_per_token == mixit.flops_per_token
    # A window of 5: tokens 0 to 3 see 1 to 4, the others 5; 2 FLOPs in each of two products.
    seen = (1 + 2 + 3 + 4 + 5 * (m - 4)) / m
    window = count(SHAPE, uniform("window"))
    saved = 2 * (2 * m * n - int(4 * seen * n))
    assert standard.flops_forward - window.flops_forward == pytest.approx(saved, abs=4)


def test_the_learned_matrix_starts_as_mixits_and_moves(tokens: torch.Tensor) -> None:
    for recipe in RECIPES:
        ours, theirs = build("learned", recipe, SHAPE), build("mixit", recipe, SHAPE)
        with torch.no_grad():
            torch.testing.assert_close(ours(tokens), theirs(tokens), atol=2e-5, rtol=1e-5)
    ours(tokens).logsumexp(-1).mean().backward()
    gradient = ours.layers["0"].attention.inner_attention.weight.grad
    assert gradient.tril().abs().sum() > 0 and gradient.triu(1).abs().sum() == 0


def test_what_a_mixer_lacks_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="the uniform mixer has no queries and keys"):
        uniform("uniform", ["qk"])
    with pytest.raises(ConfigError, match="the window mixer has no matrices to train"):
        uniform("window", ["matrix"])
    looks_ahead = dataclasses.replace(RECIPES["paper"], causal=False)
    with pytest.raises(ConfigError, match=r"model.mixing.causal = false needs a model of mixing"):
        llama_config(SHAPE, read_stack("mixit uniform", 2), looks_ahead)

"""Theorem 5.1, tested: what one layer of attention can express whose queries and keys are frozen.

A fixed causal function is fitted by one layer of N heads, with its own skip connection and bias:

    out_i = sum over heads of (sum over visible j of A_ij x_j) W + x_i W' + b

`frozen_qk` draws queries and keys and leaves them, `trained` learns them from the same draw, and
`mixit` mixes by fixed matrices. W is the product of values and output projection, and whatever A
is, least squares has the best one in closed form. Queries and keys have biases, and a sequence
begins with a token that is always the same: without those two every such layer is an odd function
of its tokens, and linear in the first.

`mixit`, which has positions besides, is linear in all tokens. So its error can fall to that of the
best causal linear map, with weights of its own for each position (`linear`), and no further.

Shapes: B batch, L length, N heads, D width of a token, H width of a head (the same).
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mixit_titan.mixing import RandomMixing
from mixit_titan.model.mixers.attention import DocumentAttention

LENGTH, WIDTH = 9, 4
LAYERS = ("frozen_qk", "trained", "mixit")
_SEQUENCES = {"train": 1024, "test": 512}
_RIDGE = 1e-8
_STEPS, _BATCH, _RATE = 100, 128, 0.1  # of training queries and keys
_TARGET_SEED = 2506
_TARGET_HEADS = 4

Features = Callable[[torch.Tensor], torch.Tensor]
"""From tokens (B, L, D) to what a readout sees of each: (B, L, features)."""


def expressivity(*, heads: tuple[int, ...], seeds: int) -> dict[str, Any]:
    """Mean squared error on new sequences, as a share of the target's variance: for each target,
    layer and number of heads, one for each seed (of data, queries and keys, and mixing)."""
    rows = []
    for target in TARGETS:
        with _one_thread():
            errors = [_seed_errors(target, heads, seed) for seed in range(seeds)]
        for layer, count in errors[0]:
            values = [found[layer, count] for found in errors]
            rows.append(
                {
                    "target": target,
                    "layer": layer,
                    "heads": count,
                    "errors": values,
                    "mean": sum(values) / seeds,
                }
            )
    return {"rows": rows, "length": LENGTH, "width": WIDTH, "sequences": _SEQUENCES}


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices as small as these are no work for several threads, which wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seed_errors(
    target: str, heads: tuple[int, ...], seed: int
) -> dict[tuple[str, int | None], float]:
    generator = torch.Generator().manual_seed(seed)
    train, test = (tokens(count, generator) for count in _SEQUENCES.values())
    known, asked = (TARGETS[target](x_BLD) for x_BLD in (train, test))

    def error(features: Features) -> float:
        weights = ridge(features(train), known)
        return share_left(features(test) @ weights, asked)

    draw = {"generator": generator, "dtype": torch.float64}
    queries, keys = (torch.randn(max(heads), WIDTH + 1, WIDTH, **draw) / 2 for _ in range(2))
    found: dict[tuple[str, int | None], float] = {("linear", None): error(prefix)}
    for count in heads:
        frozen = queries[:count], keys[:count]
        learned = train_queries_and_keys(*frozen, train, known, generator)
        found["frozen_qk", count] = error(attention_features(*frozen))
        found["trained", count] = error(attention_features(*learned))
        found["mixit", count] = error(mixing_features(count, seed))
    return found


def tokens(count: int, generator: torch.Generator) -> torch.Tensor:
    """(count, L, D): the first token is zero, the others are uniform in a cube, of variance 1."""
    x_BLD = torch.rand(count, LENGTH, WIDTH, generator=generator, dtype=torch.float64)
    x_BLD = (2 * x_BLD - 1) * math.sqrt(3)
    x_BLD[:, 0] = 0
    return x_BLD


def attention_features(queries_NDH: torch.Tensor, keys_NDH: torch.Tensor) -> Features:
    """What N heads take of the tokens, by queries and keys with a bias (their last row)."""
    attention = DocumentAttention.Config().build()

    def features(x_BLD: torch.Tensor) -> torch.Tensor:
        biased = torch.cat([x_BLD, torch.ones_like(x_BLD[..., :1])], -1)
        q_BLNH, k_BLNH = (torch.einsum("bld,ndh->blnh", biased, w) for w in (queries_NDH, keys_NDH))
        return _features(x_BLD, attention(q_BLNH, k_BLNH, _to_heads(x_BLD, len(queries_NDH))))

    return features


def mixing_features(heads: int, seed: int) -> Features:
    """What the paper's mixing matrices take, and its learned embedding of positions, of which a
    linear layer makes a constant for each."""
    mix = RandomMixing(
        heads, WIDTH, LENGTH, layer=0, recipe="paper", seed=seed, dtype=torch.float64
    )
    return lambda x_BLD: torch.cat(
        [_features(x_BLD, mix(_to_heads(x_BLD, heads))), _places(x_BLD)], -1
    )


def prefix(x_BLD: torch.Tensor) -> torch.Tensor:
    """All tokens up to each, with weights of its own for each position: its readout is the best
    causal linear map."""
    seen_BLLD = x_BLD.unsqueeze(1) * torch.ones(LENGTH, LENGTH).tril().unsqueeze(-1)
    by_place = torch.einsum("blf,lp->blpf", seen_BLLD.flatten(2), torch.eye(LENGTH).double())
    return torch.cat([by_place.flatten(2), _places(x_BLD)], -1)


def ridge(features_BLF: torch.Tensor, y_BLD: torch.Tensor, penalty: float = _RIDGE) -> torch.Tensor:
    """(F, D): the least squares readout, with a penalty that keeps it finite."""
    f, y = features_BLF.flatten(0, 1), y_BLD.flatten(0, 1)
    gram = f.T @ f + penalty * len(f) * torch.eye(f.shape[1], dtype=f.dtype)
    return torch.linalg.solve(gram, f.T @ y)


def share_left(found_BLD: torch.Tensor, y_BLD: torch.Tensor) -> float:
    """Squared error over the variance of what was asked: 1 for its mean, 0 for itself."""
    return ((found_BLD - y_BLD) ** 2).sum().item() / (
        (y_BLD - y_BLD.mean((0, 1))) ** 2
    ).sum().item()


def train_queries_and_keys(
    queries_NDH: torch.Tensor,
    keys_NDH: torch.Tensor,
    x_BLD: torch.Tensor,
    y_BLD: torch.Tensor,
    generator: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """By Adam, each step with the best readout of its batch: at the optimum of W the gradient with
    W held fixed is the gradient of the least error."""
    weights = [w.float().clone().requires_grad_() for w in (queries_NDH, keys_NDH)]
    optimizer = torch.optim.Adam(weights, lr=_RATE)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=_STEPS)
    features = attention_features(weights[0], weights[1])
    for _ in range(_STEPS):
        batch = torch.randint(len(x_BLD), (_BATCH,), generator=generator)
        f, y = features(x_BLD[batch].float()), y_BLD[batch].float()
        loss = ((f @ ridge(f.detach(), y, penalty=1e-4) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    queries, keys = (w.detach().double() for w in weights)
    return queries, keys


def _features(x_BLD: torch.Tensor, taken_BLNH: torch.Tensor) -> torch.Tensor:
    """With the token itself and a constant, for skip connection and bias."""
    return torch.cat([taken_BLNH.flatten(2), x_BLD, torch.ones_like(x_BLD[..., :1])], -1)


def _places(x_BLD: torch.Tensor) -> torch.Tensor:
    """1 at the position of each token."""
    return torch.eye(LENGTH, dtype=x_BLD.dtype).expand(len(x_BLD), -1, -1)


def _to_heads(x_BLD: torch.Tensor, heads: int) -> torch.Tensor:
    return x_BLD.unsqueeze(2).expand(-1, -1, heads, -1).contiguous()


def _another_attention(x_BLD: torch.Tensor) -> torch.Tensor:
    """Attention of other, sharper weights."""
    draw = {"generator": torch.Generator().manual_seed(_TARGET_SEED), "dtype": torch.float64}
    queries, keys = (torch.randn(_TARGET_HEADS, WIDTH, WIDTH, **draw) * 0.75 for _ in range(2))
    no_bias = torch.zeros(_TARGET_HEADS, 1, WIDTH, dtype=torch.float64)
    features = attention_features(torch.cat([queries, no_bias], 1), torch.cat([keys, no_bias], 1))
    taken = features(x_BLD)[..., : _TARGET_HEADS * WIDTH]
    return taken @ torch.randn(_TARGET_HEADS * WIDTH, WIDTH, **draw)


def _running_maximum(x_BLD: torch.Tensor) -> torch.Tensor:
    """The largest value so far in each of some directions."""
    generator = torch.Generator().manual_seed(_TARGET_SEED)
    directions = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    return (x_BLD @ directions).cummax(1).values


TARGETS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "attention": _another_attention,
    "maximum": _running_maximum,
}

"""A test of Theorem 5.1: what one layer of attention with frozen queries and keys can express.

One layer of N heads, with a skip connection and a bias, is fitted to a fixed causal function:

    out_i = sum over heads of (sum over visible j of A_ij x_j) W + x_i W' + b

`frozen_qk` has random queries and keys that stay frozen, `trained` trains them from the same
initialization, and `mixit` mixes with fixed matrices. W is the product of the value and output
projections; given A, least squares yields the best one in closed form. Queries and keys have
biases, and every sequence begins with the same token: without these two, every such layer would be
an odd function of its tokens, and linear in the first.

`mixit`, which also gets positions, is linear in all tokens. Its error can therefore fall to that of
the best causal linear map with separate weights for each position (`linear`), and no further.

Shapes: B batch, L length, N heads, D width of a token, H width of a head (equal to D).
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
"""A function from tokens (B, L, D) to the features that a readout sees of each, (B, L, F)."""


def expressivity(*, heads: tuple[int, ...], seeds: int) -> dict[str, Any]:
    """The mean squared error on unseen sequences, as a share of the target's variance: for each
    target, kind of layer and number of heads, one value per seed. A seed sets the data, the
    queries and keys, and the mixing matrices."""
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
    """Matrices this small run faster on one thread than on several."""
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
    """Sequences (count, L, D): the first token is zero, the others are uniform with variance 1."""
    x_BLD = torch.rand(count, LENGTH, WIDTH, generator=generator, dtype=torch.float64)
    x_BLD = (2 * x_BLD - 1) * math.sqrt(3)
    x_BLD[:, 0] = 0
    return x_BLD


def attention_features(queries_NDH: torch.Tensor, keys_NDH: torch.Tensor) -> Features:
    """The outputs of N attention heads, whose queries and keys have their bias in the last row."""
    attention = DocumentAttention.Config().build()

    def features(x_BLD: torch.Tensor) -> torch.Tensor:
        biased = torch.cat([x_BLD, torch.ones_like(x_BLD[..., :1])], -1)
        q_BLNH, k_BLNH = (torch.einsum("bld,ndh->blnh", biased, w) for w in (queries_NDH, keys_NDH))
        return _features(x_BLD, attention(q_BLNH, k_BLNH, _to_heads(x_BLD, len(queries_NDH))))

    return features


def mixing_features(heads: int, seed: int) -> Features:
    """The outputs of N heads with the paper's mixing matrices, and one-hot positions, which stand
    for MixiT's learned position embedding: a linear map makes them a constant per position."""
    mix = RandomMixing(
        heads, WIDTH, LENGTH, layer=0, recipe="paper", seed=seed, dtype=torch.float64
    )
    return lambda x_BLD: torch.cat(
        [_features(x_BLD, mix(_to_heads(x_BLD, heads))), _places(x_BLD)], -1
    )


def prefix(x_BLD: torch.Tensor) -> torch.Tensor:
    """The prefix of every token, separately for each position, so that the readout is the best
    causal linear map."""
    seen_BLLD = x_BLD.unsqueeze(1) * torch.ones(LENGTH, LENGTH).tril().unsqueeze(-1)
    by_place = torch.einsum("blf,lp->blpf", seen_BLLD.flatten(2), torch.eye(LENGTH).double())
    return torch.cat([by_place.flatten(2), _places(x_BLD)], -1)


def ridge(features_BLF: torch.Tensor, y_BLD: torch.Tensor, penalty: float = _RIDGE) -> torch.Tensor:
    """The least squares readout (F, D), with a penalty that keeps it finite."""
    f, y = features_BLF.flatten(0, 1), y_BLD.flatten(0, 1)
    gram = f.T @ f + penalty * len(f) * torch.eye(f.shape[1], dtype=f.dtype)
    return torch.linalg.solve(gram, f.T @ y)


def share_left(found_BLD: torch.Tensor, y_BLD: torch.Tensor) -> float:
    """Squared error as a share of the target's variance: 1 for its mean, 0 for a perfect fit."""
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
    """Train with Adam, where each step uses the best readout of its batch: at the optimal W, the
    gradient with W held fixed is the gradient of the smallest possible error."""
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
    """Append the token itself and a constant, for the skip connection and the bias."""
    return torch.cat([taken_BLNH.flatten(2), x_BLD, torch.ones_like(x_BLD[..., :1])], -1)


def _places(x_BLD: torch.Tensor) -> torch.Tensor:
    """The one-hot position of each token."""
    return torch.eye(LENGTH, dtype=x_BLD.dtype).expand(len(x_BLD), -1, -1)


def _to_heads(x_BLD: torch.Tensor, heads: int) -> torch.Tensor:
    return x_BLD.unsqueeze(2).expand(-1, -1, heads, -1).contiguous()


def _another_attention(x_BLD: torch.Tensor) -> torch.Tensor:
    """A target: attention with other, sharper weights."""
    draw = {"generator": torch.Generator().manual_seed(_TARGET_SEED), "dtype": torch.float64}
    queries, keys = (torch.randn(_TARGET_HEADS, WIDTH, WIDTH, **draw) * 0.75 for _ in range(2))
    no_bias = torch.zeros(_TARGET_HEADS, 1, WIDTH, dtype=torch.float64)
    features = attention_features(torch.cat([queries, no_bias], 1), torch.cat([keys, no_bias], 1))
    taken = features(x_BLD)[..., : _TARGET_HEADS * WIDTH]
    return taken @ torch.randn(_TARGET_HEADS * WIDTH, WIDTH, **draw)


def _running_maximum(x_BLD: torch.Tensor) -> torch.Tensor:
    """A target: the running maximum along several random directions."""
    generator = torch.Generator().manual_seed(_TARGET_SEED)
    directions = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    return (x_BLD @ directions).cummax(1).values


TARGETS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "attention": _another_attention,
    "maximum": _running_maximum,
}

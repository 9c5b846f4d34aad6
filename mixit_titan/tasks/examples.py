"""Examples of a task, and how they are split: what is tested is never trained on.

A drawn example belongs to the test split or to the training split by a hash of its tokens, whatever
the seed. A listed one (modular addition, a file of reviews) belongs to one of two lists. Settings
are chosen on a validation split, which is taken out of the training split by the same hash; once
they are chosen, the model trains on those examples too. A batch is a function of (seed, step), so
the state of the data is just the step number.

Shapes: N examples, L positions, V vocabulary.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from mixit_titan.errors import ConfigError
from mixit_titan.hashing import mix_bits

Split = Literal["train", "test", "validation", "train without validation"]
TEST_ONE_IN = 8
"""Where a hash decides, one in this many examples is for testing, and another for validation."""
_TEST, _VALIDATION = 0, 1  # hash % TEST_ONE_IN
_IN_VAIN = 10_000  # draws without an example of a split, after which we conclude that there is none


@dataclass(frozen=True)
class Examples:
    """A set of examples as arrays: inputs, labels, and slices to report accuracy by."""

    tokens: np.ndarray
    """(N, L): the input tokens."""
    labels: np.ndarray
    """(N, L): the label of each position, IGNORE_INDEX (-100, as in torchtitan) where there is
    none. (N, 1) if the label belongs to the complete sequence."""
    slices: dict[str, np.ndarray] = field(default_factory=dict)
    """Name -> integers that broadcast to the labels: accuracy is also reported for each value."""
    targets: np.ndarray | None = None
    """(N, L, V): log-probabilities to match instead of the labels."""

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: np.ndarray | slice) -> "Examples":
        return Examples(
            self.tokens[rows],
            self.labels[rows],
            {name: _rows(values, rows) for name, values in self.slices.items()},
            None if self.targets is None else self.targets[rows],
        )


Draw = Callable[[np.random.Generator, int], Examples]


class Stream(Protocol):
    """A source of training batches."""

    def batch(self, step: int, size: int) -> Examples: ...


@dataclass(frozen=True)
class Fresh:
    """Examples drawn anew at every step."""

    draw: Draw
    seed: int
    split: Split = "train"

    def batch(self, step: int, size: int) -> Examples:
        return draw_split(self.draw, np.random.default_rng([self.seed, 0, step]), size, self.split)


@dataclass(frozen=True)
class Listed:
    """A list of examples, shuffled anew in each epoch."""

    examples: Examples
    seed: int
    more: Fresh | None = None
    """More examples of the same split, if the list was drawn."""

    def batch(self, step: int, size: int) -> Examples:
        count = len(self.examples)
        epochs, places = np.divmod(np.arange(step * size, (step + 1) * size), count)
        rows = [_order(self.seed, e, count)[places[epochs == e]] for e in np.unique(epochs)]
        return self.examples.take(np.concatenate(rows))


def drawn_split(draw: Draw, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
    """Return training batches and the test set of a task that draws its examples. `train` = 0: no
    example is repeated."""
    held_out = draw_distinct(draw, np.random.default_rng([seed, 1]), test, "test")
    if train == 0:
        return Fresh(draw, seed), held_out
    listed = draw_distinct(draw, np.random.default_rng([seed, 2]), train, "train")
    return Listed(listed, seed, more=Fresh(draw, seed)), held_out


def hold_out_validation(stream: Stream, count: int) -> tuple[Stream, Examples]:
    """Return training batches without the validation examples, and `count` of these (0: all of
    them, if they are listed). Test examples were never in the stream."""
    if isinstance(stream, Fresh):
        rng = np.random.default_rng([stream.seed, 4])
        found = draw_distinct(stream.draw, rng, count, "validation")
        return replace(stream, split="train without validation"), found
    if not isinstance(stream, Listed):
        raise ConfigError(
            f"--held-out validation: {type(stream).__name__} is the task's own stream, from "
            "which no example can be held out; give the task a method `validation`"
        )
    held_out = belongs_to(stream.examples, "validation")
    kept = replace(stream, examples=stream.examples.take(~held_out))
    if stream.more is not None:
        kept = replace(kept, more=replace(stream.more, split="train without validation"))
    return kept, stream.examples.take(np.flatnonzero(held_out)[: count or None])


def draw_split(draw: Draw, rng: np.random.Generator, count: int, split: Split) -> Examples:
    """Return `count` examples of one split."""
    parts, missing, in_vain = [], count, 0
    while missing > 0:
        if in_vain > _IN_VAIN:
            raise ConfigError(
                f"there is no {split} example at this difficulty: make the task harder"
            )
        many = split.startswith("train")
        drawn = draw(rng, missing + missing // 4 + 8 if many else 10 * missing)
        part = drawn.take(np.flatnonzero(belongs_to(drawn, split))[:missing])
        parts.append(part)
        missing -= len(part)
        in_vain = 0 if len(part) else in_vain + len(drawn)
    return concatenate(parts)


def draw_distinct(draw: Draw, rng: np.random.Generator, count: int, split: Split) -> Examples:
    """Return `count` different examples of one split."""
    if count < 1:
        raise ConfigError(f"--{split} is {count}: a {split} set needs at least 1 example")
    found = draw_split(draw, rng, count, split)
    while True:
        found = found.take(np.sort(np.unique(row_hashes(found), return_index=True)[1]))
        missing = count - len(found)
        if missing <= 0:
            return found.take(slice(count))
        more = draw_split(draw, rng, 2 * count, split)
        new = more.take(~np.isin(row_hashes(more), row_hashes(found)))
        if len(new) == 0:
            raise ConfigError(
                f"there are only {len(found):,} different {split} examples at this difficulty and "
                f"--{split} is {count:,}: lower it, or make the task harder"
            )
        found = concatenate([found, new])


def belongs_to(examples: Examples, split: Split) -> np.ndarray:
    """Return (N,): whether each example belongs to a split, which depends on its tokens alone."""
    side = row_hashes(examples) % TEST_ONE_IN
    match split:
        case "test":
            return side == _TEST
        case "validation":
            return side == _VALIDATION
        case "train":
            return side != _TEST
        case "train without validation":
            return (side != _TEST) & (side != _VALIDATION)


def row_hashes(examples: Examples) -> np.ndarray:
    """Return a 64-bit hash per row of tokens."""
    tokens = examples.tokens.astype(np.uint64)
    # A sum of products alone has weak low-order bits.
    return mix_bits(tokens @ _multipliers(tokens.shape[1]))


def concatenate(parts: list[Examples]) -> Examples:
    """Join examples with the same slices, in order."""
    if len(parts) == 1:
        return parts[0]
    targets = [part.targets for part in parts]
    return Examples(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.labels for part in parts]),
        {
            name: values
            if len(values) == 1
            else np.concatenate([part.slices[name] for part in parts])
            for name, values in parts[0].slices.items()
        },
        None if targets[0] is None else np.concatenate(targets),
    )


def octave(values: np.ndarray) -> np.ndarray:
    """Return the largest power of two up to each value, and 0 for 0: a coarse slice of many
    numbers."""
    return np.where(values > 0, 1 << np.maximum(np.frexp(values)[1] - 1, 0), 0)


def _rows(values: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
    """Take rows of a slice. One that is the same for all examples has a single row, and keeps
    it."""
    return values if len(values) == 1 else values[rows]


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, count: int) -> np.ndarray:
    return np.random.default_rng([seed, 3, epoch]).permutation(count)


@functools.cache
def _multipliers(length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**63, length, dtype=np.uint64) * 2 + 1

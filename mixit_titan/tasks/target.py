"""Examples that decide whether a run has reached its target accuracy; no result is reported on
them.

They come from the training side and are drawn apart from the batches, so they decide nothing about
the test set and are not held out of anything.
"""

import numpy as np

from mixit_titan.errors import ConfigError
from mixit_titan.tasks.examples import (
    Examples,
    Fresh,
    Listed,
    Stream,
    draw_distinct,
    row_hashes,
)


def stopping_examples(stream: Stream, count: int) -> Examples:
    """Return up to `count` examples of the side that `stream` trains on, but none that it lists."""
    if isinstance(stream, Fresh):
        return _drawn(stream, count)
    if not isinstance(stream, Listed):
        raise ConfigError(
            f"--target-accuracy: {type(stream).__name__} is the task's own stream, from which "
            "no other examples can be drawn; give the task a method `stopping`"
        )
    if stream.more is None:
        raise ConfigError(
            "--target-accuracy: all examples of this task are listed, and none is left to decide "
            "when to stop; leave it out (--target-accuracy None)"
        )
    found = _drawn(stream.more, count)
    found = found.take(~np.isin(row_hashes(found), row_hashes(stream.examples)))
    if len(found) == 0:
        raise ConfigError(
            "--target-accuracy: --train lists all of the training examples, and none is left to "
            "decide when to stop; lower --train, or leave the target out (--target-accuracy None)"
        )
    return found


def _drawn(stream: Fresh, count: int) -> Examples:
    rng = np.random.default_rng([stream.seed, 5])
    return draw_distinct(stream.draw, rng, count, stream.split)

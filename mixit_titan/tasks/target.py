"""What decides that a run has reached its target accuracy: examples that no figure is reported on.

They are of the side that is trained, and drawn apart from the batches, so that they decide nothing
about the test set and are taken out of nothing.
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
    """Up to `count` examples of the side that `stream` trains; none of those that it lists."""
    if isinstance(stream, Fresh):
        return _drawn(stream, count)
    if not isinstance(stream, Listed):
        raise ConfigError(
            f"--target-accuracy: {type(stream).__name__} is a stream of the task's own, from which "
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

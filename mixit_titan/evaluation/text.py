"""The loss of a model on a text: exact sums over all tokens, also by length of context."""

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from mixit_titan.evaluation.documents import Documents
from mixit_titan.evaluation.likelihood import ALONE, Forward, Share, Window, score

_AT_A_TIME = 4096  # windows whose results are exchanged together


def windows(tokens: np.ndarray, *, context: int, stride: int) -> Iterator[Window]:
    """Windows of at most `context` inputs, each `stride` tokens after the one before. Every token
    of the document but the first is scored once, with all the context that its window has.

        tokens  0 1 2 3 4 5 6    context = 4, stride = 2
        inputs  0 1 2 3          scores 1 2 3 4
                    2 3 4 5      scores     5 6
    """
    done = 1  # the first token has no context
    for first in range(0, len(tokens) - 1, stride):
        end = min(first + context + 1, len(tokens))
        yield Window(tokens[first:end], scored=end - done)
        done = end
        if end == len(tokens):
            return


def text_loss(
    documents: Documents,
    forward: Forward,
    *,
    vocab: int,
    context: int,
    stride: int,
    share: Share = ALONE,
) -> dict[str, Any]:
    """Loss, perplexity and bits per byte of a text. `positions` has the loss by tokens of context,
    in octaves: 1, 2 to 3, 4 to 7, ..."""
    sums, counts, size = np.zeros(context + 1), np.zeros(context + 1, np.int64), 0.0
    found = (w for d in documents.tokens for w in windows(d, context=context, stride=stride))
    for block in _blocks(found):
        scores = score(block, forward, vocab=vocab, share=share)
        for window, scored in zip(block, scores, strict=True):
            before = np.arange(window.length - window.scored, window.length) + 1
            sums[before] += scored.nats
            counts[before] += 1
            size += float(documents.token_bytes[window.tokens[-window.scored :]].sum())
    nats, tokens = math.fsum(sums), int(counts.sum())
    return {
        "loss": nats / tokens,
        "perplexity": math.exp(min(nats / tokens, 700)),
        "bits_per_byte": nats / math.log(2) / size if size else None,
        "tokens": tokens,
        "bytes": size,
        "documents": len(documents.tokens),
        "text": documents.name,
        "context": context,
        "stride": stride,
        "positions": list(_octaves(sums, counts)),
    }


def _blocks(found: Iterable[Window]) -> Iterator[list[Window]]:
    found = iter(found)
    while block := list(islice(found, _AT_A_TIME)):
        yield block


def _octaves(sums: np.ndarray, counts: np.ndarray) -> Iterator[dict[str, Any]]:
    first = 1
    while first < len(sums):
        last = min(2 * first, len(sums)) - 1
        tokens = int(counts[first : last + 1].sum())
        if tokens:
            loss = math.fsum(sums[first : last + 1]) / tokens
            yield {"first": first, "last": last, "loss": loss, "tokens": tokens}
        first = last + 1

"""Log-likelihoods of tokens, identical on any number of ranks.

Windows are batched independently of the ranks, longest first, and the ranks share the batches. The
result of a batch does not depend on other batches, and the ranks exchange values of single tokens,
which are zero on all ranks but one, so that no sum depends on how the work was shared.

Shapes: B batch, L length, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

from mixit_titan.device import device_type
from mixit_titan.model.llama import MixitLlama

_TOKENS = 2**13  # in a batch
_LOGITS = 2**26  # in a batch: 256 MiB in float32

Forward = Callable[[torch.Tensor], torch.Tensor]
"""A function from tokens (B, L) on the host, one document per row, to logits (B, L, V)."""


@dataclass(frozen=True)
class Window:
    """Tokens, the last `scored` of which are predicted from all tokens before them.

    tokens  5 2 7 1 4    scored = 2
    inputs  5 2 7 1
    scored        1 4
    """

    tokens: Sequence[int] | np.ndarray
    scored: int

    @property
    def length(self) -> int:
        """The number of input tokens."""
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Score:
    """A model's predictions for the scored tokens of a window."""

    nats: np.ndarray
    """The negative log-likelihood of each token."""
    greedy: bool
    """Whether every token was the most likely one."""


@dataclass(frozen=True)
class Share:
    """The share of the batches that this rank computes."""

    rank: int = 0
    ranks: int = 1
    group: dist.ProcessGroup | None = None
    """The group of all ranks, on the host; None for a single rank."""

    def gathered(self, own: np.ndarray) -> np.ndarray:
        """The values of all ranks, each of which is zero on all ranks but one."""
        total = torch.from_numpy(own)
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        return total.numpy()

    def gathered_texts(self, own: list[str]) -> list[str]:
        """The texts of all ranks, each of which is empty on all ranks but one."""
        if self.group is None:
            return own
        found: list[list[str]] = [[]] * self.ranks
        dist.all_gather_object(found, own, group=self.group)
        return ["".join(each) for each in zip(*found, strict=True)]


ALONE = Share()


def plain_forward(model: MixitLlama) -> Forward:
    """The forward pass of a model on a single device."""
    return lambda tokens_BL: model(tokens_BL.to(device_type()))


def score(
    windows: Sequence[Window],
    forward: Forward,
    *,
    vocab: int,
    share: Share = ALONE,
    rows: int | None = None,
    length: int | None = None,
) -> list[Score]:
    """Score windows; every rank gets all scores, in order. `rows`: the batch size (default: as many
    as fit `_TOKENS` and `_LOGITS`). `length`: a fixed row length, for a compiled model, which
    would be recompiled for every new shape."""
    if not windows:
        return []
    batches = _batches(windows, vocab=vocab, rows=rows, length=length)
    first_W = np.cumsum([0, *(window.scored for window in windows)])
    nats, likeliest = np.zeros(first_W[-1]), np.zeros(first_W[-1])
    # All ranks do equally many forward passes, as FSDP requires.
    for turn in range(-(-len(batches) // share.ranks)):
        place = turn * share.ranks + share.rank
        batch = batches[min(place, len(batches) - 1)]
        shape = None if length is None else (rows or _rows(length, vocab), length)
        found = _score_batch([windows[n] for n in batch], forward, shape)
        for n, (own, most) in zip(batch, found, strict=True):
            if place < len(batches):
                nats[first_W[n] : first_W[n + 1]] = own
                likeliest[first_W[n] : first_W[n + 1]] = most
    nats, likeliest = share.gathered(nats), share.gathered(likeliest)
    bounds = pairwise(first_W.tolist())
    return [Score(nats[a:b], bool(likeliest[a:b].all())) for a, b in bounds]


def _batches(
    windows: Sequence[Window], *, vocab: int, rows: int | None, length: int | None
) -> list[list[int]]:
    """Batches of window indices, sorted by length to save padding."""
    order = sorted(range(len(windows)), key=lambda n: (-windows[n].length, n))
    found: list[list[int]] = []
    while order:
        longest = length or windows[order[0]].length
        count = rows or _rows(longest, vocab)
        found.append(order[:count])
        order = order[count:]
    return found


def _rows(length: int, vocab: int) -> int:
    return max(1, min(_TOKENS, _LOGITS // vocab) // length)


@torch.no_grad()
def _score_batch(
    windows: Sequence[Window], forward: Forward, shape: tuple[int, int] | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Score a batch, padded at the end, where no scored token attends to the padding."""
    rows, length = shape or (len(windows), max(window.length for window in windows))
    tokens_BL = torch.zeros(rows, length, dtype=torch.long)
    for row, window in enumerate(windows):
        tokens_BL[row, : window.length] = torch.as_tensor(np.asarray(window.tokens[:-1], np.int64))
    logits_BLV = forward(tokens_BL)
    found = []
    for window, logits_LV in zip(windows, logits_BLV, strict=False):
        logits_SV = logits_LV[window.length - window.scored : window.length].float()
        labels = np.asarray(window.tokens[len(window.tokens) - window.scored :], np.int64)
        labels_S = torch.from_numpy(labels).to(logits_SV.device)
        nats_S = F.cross_entropy(logits_SV, labels_S, reduction="none")
        most_S = logits_SV.argmax(-1) == labels_S
        found.append((nats_S.double().cpu().numpy(), most_S.double().cpu().numpy()))
    return found

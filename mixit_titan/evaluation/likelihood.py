"""Log-likelihoods of tokens, the same on any number of ranks.

Windows are put into batches before any rank looks at them, longest first; the ranks share the
batches. What a batch gives depends on nothing beside it, and the ranks exchange figures for single
tokens, of which all but one rank have a zero: no sum depends on how the work was shared.

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

_TOKENS = 2**13  # of a batch
_LOGITS = 2**26  # of a batch: 256 MiB in float32

Forward = Callable[[torch.Tensor], torch.Tensor]
"""Logits (B, L, V) of tokens (B, L) on the host, each row a document by itself."""


@dataclass(frozen=True)
class Window:
    """Tokens, of which the last `scored` ones are predicted from all that are before them.

    tokens  5 2 7 1 4    scored = 2
    inputs  5 2 7 1
    scored        1 4
    """

    tokens: Sequence[int] | np.ndarray
    scored: int

    @property
    def length(self) -> int:
        """Of the inputs."""
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Score:
    """What a model says of the scored tokens of a window."""

    nats: np.ndarray
    """The negative log-likelihood of each."""
    greedy: bool
    """Whether each was the most likely one."""


@dataclass(frozen=True)
class Share:
    """The part of the batches that this rank works on."""

    rank: int = 0
    ranks: int = 1
    group: dist.ProcessGroup | None = None
    """Of all ranks, on the host; None for one rank."""

    def gathered(self, own: np.ndarray) -> np.ndarray:
        """Figures of all ranks, of which each is zero but on one rank."""
        total = torch.from_numpy(own)
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        return total.numpy()

    def gathered_texts(self, own: list[str]) -> list[str]:
        """Texts of all ranks, of which each is empty but on one rank."""
        if self.group is None:
            return own
        found: list[list[str]] = [[]] * self.ranks
        dist.all_gather_object(found, own, group=self.group)
        return ["".join(each) for each in zip(*found, strict=True)]


ALONE = Share()


def plain_forward(model: MixitLlama) -> Forward:
    """For a model that is on one device."""
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
    """The scores of windows, in their order, on every rank. `rows`: of a batch (default: as many
    as fit `_TOKENS` and `_LOGITS`). `length`: of every row, where all batches must have one shape:
    a compiled model would be compiled anew for each."""
    if not windows:
        return []
    batches = _batches(windows, vocab=vocab, rows=rows, length=length)
    first_W = np.cumsum([0, *(window.scored for window in windows)])
    nats, likeliest = np.zeros(first_W[-1]), np.zeros(first_W[-1])
    # Every rank does as many forward passes as the others, which FSDP needs.
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
    """Numbers of windows: those of like length together, so that little is padding."""
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
    """Padded at the end, where no token that is scored can see it."""
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

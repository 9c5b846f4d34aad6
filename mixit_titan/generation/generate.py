"""Generates tokens after prompts.

Prompts of unequal length are processed side by side without padding: all rows are at the same
position, and while a row's prompt continues, its next token is taken from the prompt.
"""

from collections.abc import Iterator, Sequence

import torch

from mixit_titan.device import device_type
from mixit_titan.generation.sampling import Sampling
from mixit_titan.model.decoding import Decoder
from mixit_titan.model.llama import MixitLlama


class UncachedDecoder:
    """A `Decoder` without a cache: it recomputes the complete sequence at every step."""

    def __init__(self, model: MixitLlama) -> None:
        self.model = model
        self.tokens_BL: torch.Tensor | None = None

    @torch.no_grad()
    def step(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """Append tokens to each row and return their logits."""
        past = [] if self.tokens_BL is None else [self.tokens_BL]
        self.tokens_BL = torch.cat([*past, tokens_BT], dim=1)
        return self.model(self.tokens_BL)[:, -tokens_BT.shape[1] :]


def generate(
    model: MixitLlama,
    prompts: Sequence[Sequence[int]],
    *,
    count: int,
    sampling: Sampling,
    vocabulary: int,
    end_of_text: int | None,
    cache: bool,
) -> Iterator[tuple[int, int | None]]:
    """Yields (row, token) as tokens are generated, at most `count` per row, and (row, None) at the
    end of a row. Tokens are below `vocabulary`, which may be smaller than the model's. Each prompt
    must have at least one token."""
    decoder = Decoder(model) if cache else UncachedDecoder(model)
    lengths = [len(prompt) for prompt in prompts]
    open_rows = set(range(len(prompts)))
    shortest = min(lengths)
    tokens = [list(prompt[:shortest]) for prompt in prompts]
    for position in range(shortest, max(lengths) + count):
        logits_BTV = decoder.step(torch.tensor(tokens, device=device_type()))
        drawn = sampling.choose(logits_BTV[:, -1, :vocabulary], position).tolist()
        tokens = [
            [prompt[position] if position < len(prompt) else token]
            for prompt, token in zip(prompts, drawn, strict=True)
        ]
        for row in sorted(open_rows):
            if position < lengths[row]:
                continue
            ended = drawn[row] == end_of_text
            if not ended:
                yield row, drawn[row]
            if ended or position + 1 == lengths[row] + count:
                yield row, None
                open_rows.remove(row)
        if not open_rows:
            return

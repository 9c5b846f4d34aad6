"""The text of tokens that come one by one."""

from collections.abc import Sequence

from torchtitan.components.tokenizer import BaseTokenizer

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class GrowingText:
    """What follows a prompt. A token can end within a character: it is held back until the
    character is whole, or until the end, where it shows as the replacement character."""

    def __init__(self, tokenizer: BaseTokenizer, prompt: Sequence[int]) -> None:
        self.tokenizer, self.tokens = tokenizer, list(prompt)
        self.ended = False
        self._taken = len(tokenizer.decode(self.tokens))

    def add(self, token: int | None) -> None:
        """None: the end."""
        if token is None:
            self.ended = True
        else:
            self.tokens.append(token)

    def take(self) -> str:
        """What is new and whole since the last time. Decoded with all that is before it: what a
        token looks like may depend on it."""
        text = self.tokenizer.decode(self.tokens)
        if not self.ended:
            text = text.rstrip(_INCOMPLETE)
        new = text[self._taken :]
        self._taken += len(new)
        return new

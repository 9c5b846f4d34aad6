"""Decodes text from tokens that arrive one by one."""

from collections.abc import Sequence

from torchtitan.components.tokenizer import BaseTokenizer

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class GrowingText:
    """The text after a prompt. A token can end within a character: it is held back until the
    character is complete, or until the end, where it becomes the replacement character."""

    def __init__(self, tokenizer: BaseTokenizer, prompt: Sequence[int]) -> None:
        self.tokenizer, self.tokens = tokenizer, list(prompt)
        self.ended = False
        self._taken = len(tokenizer.decode(self.tokens))

    def add(self, token: int | None) -> None:
        """Add a token; None ends the text."""
        if token is None:
            self.ended = True
        else:
            self.tokens.append(token)

    def take(self) -> str:
        """The text that is complete and has not been taken yet. All earlier tokens are decoded
        again, because the text of a token may depend on them."""
        text = self.tokenizer.decode(self.tokens)
        if not self.ended:
            text = text.rstrip(_INCOMPLETE)
        new = text[self._taken :]
        self._taken += len(new)
        return new

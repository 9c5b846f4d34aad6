"""A token as a few characters, for the axes of a figure."""

from torchtitan.components.tokenizer import BaseTokenizer

_LONGEST = 10
_VISIBLE = str.maketrans({" ": "␣", "\n": "↵", "\t": "→", "\r": "↵", "$": r"\$"})


def text_token_name(tokenizer: BaseTokenizer, token: int) -> str:
    """The text of a token, or its id as `#123` where the figure's font cannot show it."""
    text = tokenizer.decode([token])
    # The fonts of a figure have Latin letters; part of a character has no glyph at all.
    if not text or any(ord(letter) >= 0x250 or not letter.isprintable() for letter in text.strip()):
        return f"#{token}"
    return shown(text)


def shown(text: str) -> str:
    """The text shortened to one line, with nothing that matplotlib would read as a formula."""
    return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…").translate(_VISIBLE)

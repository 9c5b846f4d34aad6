"""A token as a few characters, for the axes of a picture."""

from torchtitan.components.tokenizer import BaseTokenizer

_LONGEST = 10
_VISIBLE = str.maketrans({" ": "␣", "\n": "↵", "\t": "→", "\r": "↵", "$": r"\$"})


def text_token_name(tokenizer: BaseTokenizer, token: int) -> str:
    text = tokenizer.decode([token])
    # The fonts of a picture have Latin letters; a part of a character is none at all.
    if not text or any(ord(letter) >= 0x250 or not letter.isprintable() for letter in text.strip()):
        return f"#{token}"
    return shown(text)


def shown(text: str) -> str:
    """Short, in one line, and nothing in it that matplotlib would take for a formula."""
    return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…").translate(_VISIBLE)

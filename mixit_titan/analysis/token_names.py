"""A token as a few characters, for the axes of a picture."""

from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.tasks.addition import ANSWER, EQUALS, PLUS, Addition
from mixit_titan.tasks.dyck import Dyck
from mixit_titan.tasks.hop import Hop
from mixit_titan.tasks.task import Task
from mixit_titan.tasks.yelp import Yelp

_LONGEST = 10
_VISIBLE = str.maketrans({" ": "␣", "\n": "↵", "\t": "→", "\r": "↵", "$": r"\$"})


def task_token_name(task: Task, token: int) -> str:
    if isinstance(task, Addition):
        names = [*map(str, range(10)), "", ""]
        names[PLUS], names[EQUALS] = "+", "="
        return names[token] if token < ANSWER else f"{token - ANSWER}'"
    if isinstance(task, Dyck):
        return ["(", ")", "start", "?"][token]
    if isinstance(task, Hop):
        letter = "abcdefghijklmnopqrstuvwxyz"[: task.letters]
        return letter[token] if token < task.letters else f"k={token - task.letters - 1}"
    if isinstance(task, Yelp):
        return _shown(task.token_names[token])
    return str(token)


def text_token_name(tokenizer: BaseTokenizer, token: int) -> str:
    text = tokenizer.decode([token])
    # The fonts of a picture have Latin letters; a part of a character is none at all.
    if not text or any(ord(letter) >= 0x250 or not letter.isprintable() for letter in text.strip()):
        return f"#{token}"
    return _shown(text)


def _shown(text: str) -> str:
    return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…").translate(_VISIBLE)

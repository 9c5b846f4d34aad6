"""What is shown of tokens that arrive one at a time."""

from mixit_titan.data.tokenizers import ByteTokenizer
from mixit_titan.generation.command import shown
from mixit_titan.generation.text import GrowingText


def test_a_character_is_shown_when_it_is_whole() -> None:
    growing, pieces = GrowingText(ByteTokenizer(), list("é".encode())), []
    for byte in "aß€🙂!".encode():
        growing.add(byte)
        pieces.append(growing.take())
    assert pieces == ["a", "", "ß", "", "", "€", "", "", "", "🙂", "!"]


def test_bytes_that_are_no_text_are_shown_at_last() -> None:
    growing = GrowingText(ByteTokenizer(), [])
    growing.add(0xE2)
    assert growing.take() == ""
    growing.add(ord("x"))
    assert growing.take() == "\ufffdx"
    growing.add(0xE2)
    growing.add(None)
    assert growing.take() == "\ufffd"


def test_rows_appear_one_below_the_other() -> None:
    rows = [GrowingText(ByteTokenizer(), []) for _ in range(3)]
    new = [(0, "a"), (1, "k"), (2, "x"), (2, None), (0, "b"), (1, "l"), (0, None), (1, None)]
    coming = [(row, token and ord(token)) for row, token in new]
    pieces = list(shown(["P", "Q", "R"], rows, coming))
    assert "".join(pieces) == "== 1 ==\nPab\n== 2 ==\nQkl\n== 3 ==\nRx\n"
    assert pieces[:3] == ["== 1 ==\nP", "a", "b"]

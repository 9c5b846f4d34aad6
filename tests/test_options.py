"""Errors that tyro prints in a box of many lines are one sentence here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from mixit_titan.errors import ConfigError
from mixit_titan.options import read_known_options, read_options
from mixit_titan.ranges import COUNT


@dataclass
class Form:
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    out: Path
    jobs: Annotated[int, COUNT] = 1
    rate: float | None = None
    kind: Literal["new", "old"] = "new"
    pair: tuple[Path, Path] | None = None
    fast: bool = False
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()


RIGHT = ["text", "--out", "here"]


def test_what_is_right() -> None:
    words = [*RIGHT, "--jobs=3", "--rate", "0.5", "--no-fast", "--set", "a", "b"]
    form = read_options(Form, words, prog="mixit-titan x")
    assert form == Form("text", Path("here"), jobs=3, rate=0.5, fixed=("a", "b"))
    assert read_known_options(Form, [*RIGHT, "--a.b", "1"], prog="x")[1] == ["--a.b", "1"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    {
        "text --out o --jobs x": "--jobs is 'x': expected an integer",
        "text --out o --jobs=x": "--jobs is 'x': expected an integer",
        "text --out o --jobs 0": "--jobs is 0: it must be at least 1",
        "text --out o --jobs": "--jobs needs a value: expected an integer",
        "text --out o --jobs --fast": "--jobs needs a value: expected an integer",
        "text --out o --rate x": "--rate is 'x': expected a number",
        "text --out o --rate nan": "--rate is nan: it must be a finite number of at most 64 bits",
        "text --out o --kind odl": "--kind is 'odl': expected 'new', 'old'",
        "text --out o --pair a": "--pair is 'a': expected path and path",
        "text --out o more": "unexpected argument 'more': `mixit-titan x --help` shows the options",
        "text": "--out is missing: `mixit-titan x --help` shows what it takes",
        "": "SOURCE is missing: `mixit-titan x --help` shows what it takes",
    }.items(),
)
def test_what_is_wrong_is_one_sentence(
    words: str, sentence: str, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(ConfigError) as error:
        read_options(Form, words.split(), prog="mixit-titan x")
    assert str(error.value) == sentence
    assert capsys.readouterr() == ("", "")


def test_the_nearest_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^unknown option of x '--job': did you mean '--jobs'"):
        read_options(Form, [*RIGHT, "--job", "3"], prog="mixit-titan x")
    with pytest.raises(ConfigError, match="did you mean '--set'") as error:
        read_options(Form, [*RIGHT, "--sett", "3"], prog="mixit-titan x")
    assert "--source" not in str(error.value) and "--fixed" not in str(error.value)

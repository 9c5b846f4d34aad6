"""Help, as read on a terminal of 80 columns."""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from mixit_titan.cli import COMMANDS, main
from mixit_titan.fields import Group
from mixit_titan.options import read_options


@dataclass
class Form:
    """Turn something into something else.

    Example: mixit-titan x SOURCE --out folder --kind old --jobs 3 --pair one two --rate 0.25
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """What to read."""
    out: Path
    """Where it goes."""
    jobs: Annotated[int, Group("speed")] = 1
    """Processes at a time."""
    rate: float | None = None
    """How fast (default: the machine's)."""
    kind: Literal["new", "old"] = "new"
    """Which one."""
    pair: tuple[Path, Path] | None = None
    """Two of them."""
    cache: bool = True
    """Keep what was read."""
    seed: int = 0
    """What is drawn."""


HELP = """\
usage: mixit-titan x SOURCE --out PATH [OPTIONS]

Turn something into something else.

Example: mixit-titan x SOURCE --out folder --kind old --jobs 3 \\
             --pair one two --rate 0.25

arguments:
  SOURCE                What to read.

options:
  --out PATH            Where it goes.

speed:
  --jobs N              Processes at a time. (default: 1)
  --rate X              How fast (default: the machine's).
  --kind new|old        Which one. (default: new)
  --pair PATH PATH      Two of them.
  --cache, --no-cache   Keep what was read. (default: on)
  --seed N              What is drawn. (default: 0)

  -h, --help            Show this help and exit.
"""


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", *arguments])
    main()


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_options_are_grouped_and_say_their_defaults(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as exit_:
        read_options(Form, ["--help"], prog="mixit-titan x")
    assert exit_.value.code == 0 and capsys.readouterr().out == HELP


@pytest.mark.parametrize("command", ["--help", *(f"{name} --help" for name in COMMANDS)])
def test_help_fits_into_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, command: str
) -> None:
    with contextlib.suppress(SystemExit):
        call(monkeypatch, *command.split())
    text = capsys.readouterr().out
    assert text.startswith("usage: mixit-titan")
    assert max(map(len, text.splitlines())) <= 80
    assert "None" not in text.replace("None for sde", "")
    assert not re.findall(r"^  -\S+(?: \S+)*\n(?! {24})", text, re.M)  # each has a description

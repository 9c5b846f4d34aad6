"""`python -m mixit_titan.reference`: generate docs/reference from the code."""

import sys
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.errors import one_sentence
from mixit_titan.options import read_options
from mixit_titan.reference.pages import PAGES


@dataclass
class Arguments:
    """Generate the reference of config keys and commands from the code.

    Example: python -m mixit_titan.reference --out docs/reference
    """

    out: Path = Path("docs/reference")
    """Folder for config.md and commands.md."""


if __name__ == "__main__":
    with one_sentence():
        args = read_options(Arguments, sys.argv[1:], prog="python -m mixit_titan.reference")
        args.out.mkdir(parents=True, exist_ok=True)
        for name, page in PAGES.items():
            (args.out / name).write_text(page())
            print(f"wrote {args.out / name}")

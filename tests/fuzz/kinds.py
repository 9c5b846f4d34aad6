"""The kinds of bad input. To add one, write a function that makes a case and an entry in KINDS."""

import random
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import configs, files, options
from tests.fuzz.case import Case
from tests.fuzz.good import Good

Kind = Callable[[random.Random, Path, Good], Case]
"""Makes a case from random numbers. The path is an empty folder, which the command will have as its
working directory: what the case needs is written there. `Good` has what to damage copies of, and is
never changed."""

KINDS: dict[str, Kind] = {
    "file": files.files_case,
    "override": configs.override,
    "estimate": configs.estimate,
    "config file": configs.broken_file,
    "trained": configs.trained,
    "option": options.option,
    "task": options.task_option,
    "words": options.words,
}
COSTLY = ("trained",)

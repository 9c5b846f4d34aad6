"""What a task is, and the tasks by name."""

from typing import Protocol

import numpy as np

from mixit_titan.errors import unknown
from mixit_titan.tasks.addition import Addition
from mixit_titan.tasks.dyck import Dyck
from mixit_titan.tasks.examples import Examples, Stream
from mixit_titan.tasks.hop import Hop
from mixit_titan.tasks.imitation import Imitation
from mixit_titan.tasks.memorization import Memorization
from mixit_titan.tasks.modular import Modular
from mixit_titan.tasks.retrieval import Retrieval
from mixit_titan.tasks.yelp import Yelp


class Task(Protocol):
    """A frozen dataclass whose fields are the knobs of its difficulty."""

    def check(self) -> None:
        """Refuse an impossible difficulty in one sentence."""
        ...

    @property
    def token_count(self) -> int:
        """Different tokens that the model sees and says."""
        ...

    @property
    def positions(self) -> int:
        """The longest sequence."""
        ...

    def split(self, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
        """Training batches and the test set."""
        ...

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        """Question and answer of one example, as a person would write them."""
        ...


TASKS: dict[str, type[Task]] = {
    "addition": Addition,
    "retrieval": Retrieval,
    "hop": Hop,
    "modular": Modular,
    "dyck": Dyck,
    "memorization": Memorization,
    "yelp": Yelp,
    "imitation": Imitation,
}


def task_class(name: str) -> type[Task]:
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]


def task_name(task: Task) -> str:
    return next(name for name, cls in TASKS.items() if isinstance(task, cls))

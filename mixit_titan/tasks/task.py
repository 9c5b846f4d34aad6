"""What a task is, and the tasks by name. docs/tasks.md shows a complete one."""

import dataclasses
import importlib
import operator
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.tasks.evaluation import Score
from mixit_titan.tasks.examples import Examples, Stream, drawn_split, hold_out_validation
from mixit_titan.tasks.target import stopping_examples


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Everything the rest of the code must know about a task.

    A task is a frozen dataclass whose fields set its difficulty; each is an option of the command
    line, so each has a default. Most tasks need `token_count`, `positions` and `draw`.
    """

    def check(self) -> None:  # noqa: B027, it may stay empty
        """Refuse an impossible difficulty with a ConfigError of one sentence."""

    @property
    @abstractmethod
    def token_count(self) -> int:
        """The size of the vocabulary, of questions and of answers."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """The length of the longest sequence."""

    def draw(self, rng: np.random.Generator, count: int) -> Examples:
        """Return `count` random examples, a function of `rng` alone. Called by `split`."""
        raise NotImplementedError

    def split(self, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
        """Return training batches and the test set, which have no example in common. Drawn examples
        are split by a hash of their tokens; a task that lists its examples defines its own
        split."""
        return drawn_split(self.draw, seed=seed, train=train, test=test)

    def validation(self, *, seed: int, train: int, test: int) -> tuple[Stream, Examples]:
        """Return training batches and the `test` examples that settings are chosen on. Neither
        contains an example of the test set, nor one of the other."""
        stream, _ = self.split(seed=seed, train=train, test=test)
        return hold_out_validation(stream, test)

    def stopping(self, stream: Stream, *, count: int) -> Examples:
        """Return the examples that decide whether `--target-accuracy` is reached, for a run that
        trains on `stream`: up to `count` from the training side, none of them in the test set or in
        validation."""
        return stopping_examples(stream, count)

    def token_name(self, token: int) -> str:
        """Return a token as a person would write it."""
        return str(token)

    def write(self, tokens_L: np.ndarray, labels_L: np.ndarray) -> tuple[str, str]:
        """Return the question and answer of one example as a person would write them, for
        `--show`."""
        name = str if self.classes is not None else self.token_name
        asked = labels_L[labels_L != IGNORE_INDEX]
        return " ".join(map(self.token_name, tokens_L)), " ".join(map(name, asked))

    @property
    def classes(self) -> int | None:
        """The number of classes of one answer about the complete sequence, given by a head on the
        mean of its states; None if answers are tokens at some of the positions."""
        return None

    @property
    def padding(self) -> int | None:
        """The token that pads short sequences, if there is one: it is left out of that mean."""
        return None

    @property
    def bottleneck(self) -> bool:
        """Whether all answers are decoded from the last hidden state alone, instead of those at
        their own positions."""
        return False

    @property
    def length_key(self) -> str | None:
        """The field that `--test-length` raises; None if sequences have a single length."""
        return "length" if hasattr(self, "length") else None

    @property
    def may_look_ahead(self) -> bool:
        """Whether `--no-causal` is allowed, because no answer can be read at later positions."""
        return False

    def figures(self, score: Score, trained_parameters: int) -> dict[str, float]:
        """Return this task's own figures for its result, by name: the same names for every run."""
        return {}


TASKS: dict[str, str] = {
    "addition": "mixit_titan.tasks.addition:Addition",
    "retrieval": "mixit_titan.tasks.retrieval:Retrieval",
    "hop": "mixit_titan.tasks.hop:Hop",
    "modular": "mixit_titan.tasks.modular:Modular",
    "dyck": "mixit_titan.tasks.dyck:Dyck",
    "memorization": "mixit_titan.tasks.memorization:Memorization",
    "yelp": "mixit_titan.tasks.yelp:Yelp",
    "imitation": "mixit_titan.tasks.imitation:Imitation",
    "mqar": "mixit_titan.tasks.mqar:Mqar",
    "mad_recall": "mixit_titan.tasks.mad_recall:MadRecall",
    "mad_fuzzy_recall": "mixit_titan.tasks.mad_fuzzy_recall:MadFuzzyRecall",
    "mad_noisy_recall": "mixit_titan.tasks.mad_noisy_recall:MadNoisyRecall",
    "mad_selective_copying": "mixit_titan.tasks.mad_selective_copying:MadSelectiveCopying",
    "mad_compression": "mixit_titan.tasks.mad_compression:MadCompression",
    "mad_memorization": "mixit_titan.tasks.mad_memorization:MadMemorization",
    "induction": "mixit_titan.tasks.induction:Induction",
    "sorting": "mixit_titan.tasks.sorting:Sorting",
    "dyck_k": "mixit_titan.tasks.dyck_k:DyckK",
    "parity": "mixit_titan.tasks.parity:Parity",
    "modular_sum": "mixit_titan.tasks.modular_sum:ModularSum",
}
"""Name -> import path. A task from elsewhere goes by its import path."""


def task_class(name: str) -> type[Task]:
    """Return the task of a name or of an import path, MODULE:CLASS. That module's code is run:
    `name` must come from the user, never from a file."""
    if name not in TASKS and ":" not in name:
        raise unknown("task", name, [*TASKS, "MODULE:CLASS"])
    cls = _imported(TASKS.get(name, name))
    problem = _problem(cls)
    if problem:
        raise ConfigError(f"{name} cannot be a task: {problem} (docs/tasks.md, Adding a task)")
    return cls


def task_name(task: Task) -> str:
    """Return the name of a task, or its import path if it is not one of ours."""
    path = f"{type(task).__module__}:{type(task).__qualname__}"
    return next((name for name, known in TASKS.items() if known == path), path)


def check_examples(task: Task, examples: Examples) -> None:
    """Refuse, in one sentence, examples that contradict what a task says about itself."""
    tokens, labels = examples.tokens, examples.labels
    asked = labels[labels != IGNORE_INDEX]
    shape = tokens.shape if task.classes is None else (len(tokens), 1)
    answers = task.token_count if task.classes is None else task.classes
    problems = {
        f"{tokens.shape[1]} tokens, more than `positions`, {task.positions}": tokens.shape[1]
        > task.positions,
        f"tokens outside of 0..`token_count` - 1, {task.token_count - 1}": tokens.min() < 0
        or tokens.max() >= task.token_count,
        f"labels of shape {labels.shape}, which should be {shape}": labels.shape != shape,
        f"labels outside of 0..{answers - 1}": asked.size > 0
        and (asked.min() < 0 or asked.max() >= answers),
    }
    for name, values in examples.slices.items():
        fits = values.ndim == 2 and values.shape in {shape, (shape[0], 1), (1, shape[1]), (1, 1)}
        problems[
            f"slices {name!r} of shape {values.shape}, which should be {(shape[0], 1)}"
        ] = not fits
    for problem, is_there in problems.items():
        if is_there:
            raise ConfigError(f"{task_name(task)} has examples with {problem}: fix its `draw`")


def _imported(path: str) -> object:
    module, _, name = path.partition(":")
    if not all(part.isidentifier() for part in f"{module}.{name}".split(".")):
        raise ConfigError(
            f"{path!r} is not an import path: write MODULE:CLASS, as in my_tasks:Copy"
        )
    if not module.startswith("mixit_titan.") and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m mixit_titan` does, which is the same command
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        found = error.name is not None and not f"{module}.".startswith(f"{error.name}.")
        advice = "install what it imports" if found else "it must be in this folder, on PYTHONPATH"
        raise ConfigError(
            f"the module of the task {path!r} cannot be imported ({error}): {advice}"
            + ("" if found else " or installed")
        ) from error
    try:
        return operator.attrgetter(name)(imported)
    except AttributeError:
        raise unknown("task", name, _tasks_in(imported), where=module) from None


def _tasks_in(module: object) -> list[str]:
    return [name for name, value in vars(module).items() if _is_task(value) and value is not Task]


def _is_task(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Task)


def _problem(cls: object) -> str | None:
    """Say why a class cannot be used, in a few words."""
    if not _is_task(cls):
        return "it is not a class that inherits from mixit_titan.tasks.task.Task"
    if "__dataclass_fields__" not in vars(cls):
        return "it lacks the line @dataclass(frozen=True, kw_only=True) above it"
    missing = set(cls.__abstractmethods__)
    if cls.draw is Task.draw and cls.split is Task.split:
        missing.add("draw")
    if missing:
        return f"it lacks {', '.join(sorted(missing))}"
    unset = [f.name for f in dataclasses.fields(cls) if f.init and _has_no_default(f)]
    return f"its field {unset[0]} has no default" if unset else None


def _has_no_default(field: dataclasses.Field) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING

"""Length extrapolation: models trained on short sequences and tested on longer ones.

    mixit-titan task parity --length 16 --test-length 32 64

Rotary embeddings rotate queries and keys at any position, and an LSTM has no positions: such models
accept longer sequences than they were trained on. A mixing matrix has as many rows as the longest
training sequence, and so has a learned position embedding: nothing says how they would continue.
"""

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.options import flag
from mixit_titan.tasks.evaluation import Score, evaluate
from mixit_titan.tasks.task import Task, check_examples, task_name

if TYPE_CHECKING:
    from mixit_titan.tasks.settings import Run, Settings

SLICE = "test_length"
"""The name of the accuracies by length in a result."""
_WITHOUT_MATRIX = ("uniform", "linear")  # their rows are a formula that holds for any length


def longer_tasks(run: "Run") -> dict[int, Task]:
    """Return, for each length of --test-length, the task at that length."""
    key = run.task.length_key
    return {n: dataclasses.replace(run.task, **{key: n}) for n in run.settings.test_length}


def check_test_lengths(run: "Run") -> None:
    """Refuse, in one sentence, lengths that the task does not have or that the model cannot
    reach."""
    task, key = run.task, run.task.length_key
    if not run.settings.test_length:
        return
    if key is None:
        raise ConfigError(f"--test-length: the sequences of {task_name(task)} have a single length")
    trained = getattr(task, key)
    for length in run.settings.test_length:
        if length <= trained:
            raise ConfigError(
                f"--test-length is {length}: it must be above the training length, {flag(key)} "
                f"{trained}, which is tested in any case"
            )
        why = _why_not(run.settings, task.positions)
        if why:
            raise ConfigError(
                f"--test-length {length}: {why}; train at that length with {flag(key)} {length}, "
                "or use attention in every layer, as in --variant standard"
            )
    for longer in longer_tasks(run).values():
        longer.check()
        if longer.token_count != task.token_count:
            raise ConfigError(
                f"--test-length: {task_name(task)} has a different vocabulary at other lengths"
            )


def accuracy_by_length(
    run: "Run",
    trained: Score,
    model: nn.Module,
    device: torch.device,
    autocast: torch.autocast,
) -> dict[str, dict[str, float]]:
    """Return the slice of a result: accuracy at the training length, which is `trained`, and at
    each of --test-length, on as many examples. Empty if no other length is requested."""
    settings, found = run.settings, {}
    for length, task in longer_tasks(run).items():
        divide = {"test": task.split, "validation": task.validation}[settings.held_out]
        _, examples = divide(seed=settings.seed, train=0, test=settings.test)
        check_examples(task, examples)
        share = run.task.positions / task.positions  # of the memory, for as many tokens
        score = evaluate(model, examples, device, autocast, share=share)
        found[str(length)] = score.accuracy
    if not found:
        return {}
    return {SLICE: {str(getattr(run.task, run.task.length_key)): trained.accuracy, **found}}


def _why_not(settings: "Settings", positions: int) -> str | None:
    """Return why the model has no more positions than it is trained on; None if it has more."""
    stack = settings.layer_stack()
    fixed = () if stack is None else [pair.mixer for pair in stack.pairs if not pair.attends]
    matrices = [mixer for mixer in fixed if mixer not in _WITHOUT_MATRIX]
    if matrices:
        return f"the {matrices[0]} matrices of {settings.name!r} have only {positions} rows"
    if fixed or settings.learned_positions:
        return f"{settings.name!r} has learned vectors for only {positions} positions"
    return None

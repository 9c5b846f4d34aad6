"""A light training loop: one process, one device, the steps of one run.

The run's folder gets `metrics.jsonl` during training, a checkpoint after each evaluation and when
it is asked to stop, and at the end `model.safetensors` and `result.json`. The same command again
resumes from the checkpoint, and the final weights are bit for bit as if it had never stopped.
"""

import math
import shutil
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.files import json_text, replace_file, write_json, write_text
from mixit_titan.jobs.lock import locked
from mixit_titan.json_form import COUNT, NUMBER
from mixit_titan.reading import check_kinds, read_json, regular
from mixit_titan.runtime.late import Late
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tasks.checkpoint import (
    BEFORE,
    FILE,
    check_same_run,
    load_state,
    remove_checkpoints,
    save_state,
)
from mixit_titan.tasks.evaluation import Batch, Score, evaluate, loss_of
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.lengths import accuracy_by_length
from mixit_titan.tasks.models import build_model, check_memory, count, trained_parameters
from mixit_titan.tasks.prefetch import prefetched
from mixit_titan.tasks.progress import Reporter
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.stopping import Stopped, noted_signals
from mixit_titan.tasks.task import check_examples, task_name

_LOG_EVERY = 50
_RESERVED = {
    *("task", "variant", "loss", "accuracy", "exact", "slices", "trainable_params", "params"),
    *("steps", "seconds", "seconds_waited_for_data", "device", "settings"),
    *("folder", "seed", "seeds", "axes"),  # for a point in a sweep's report
}
"""Names that a task's own figures cannot have."""


_RESULT = {
    **{"task": str, "variant": str, "loss": NUMBER, "accuracy": float, "exact": float},
    **{"trainable_params": COUNT, "params": COUNT, "steps": COUNT, "seconds": float},
    **{"seconds_waited_for_data?": float, "device?": str, "slices": {"*": {"*": NUMBER}}},
    "settings": {"task": str, "seed": COUNT, "*": (NUMBER, bool, str, None, [(NUMBER, str)])},
    "*": NUMBER,  # the task's own figures
}


def train(run: Run, folder: Path, *, device: torch.device, reporter: Reporter) -> dict[str, Any]:
    """Train and test, and return what the folder's `result.json` holds. A finished run is kept."""
    finished = read_result(folder)
    if finished is not None:
        check_same_run(folder, finished["settings"], run.described())
        return finished
    with locked(folder):
        check_kinds(folder, files=("metrics.jsonl", "model.safetensors", FILE, BEFORE))
        loop = Loop(run, folder, device, reporter)
        score = loop.run_steps()
        _save_weights(loop.model, folder)
        result = loop.result(score)
        write_json(folder / "result.json", result)
        remove_checkpoints(folder)
    return result


def read_result(folder: Path) -> dict[str, Any] | None:
    """Read the result of a finished run; None if there is none."""
    try:
        return read_json(folder / "result.json", _RESULT, advice="remove it to run again")
    except FileNotFoundError:
        return None


def extra_figures(result: dict[str, Any]) -> dict[str, float]:
    """Return what the task itself has added to a result (Task.figures), or to its row of a
    sweep."""
    return {key: value for key, value in result.items() if key not in _RESERVED}


def learning_rate(settings: Settings, step: int) -> float:
    """Return the learning rate at step 0, 1, ...: it rises linearly for `warmup` steps, then falls
    to 0 at the last."""
    warmup = min(settings.warmup, settings.steps)
    if step < warmup:
        return settings.lr * (step + 1) / warmup
    done = (step - warmup) / max(1, settings.steps - warmup)
    if settings.decay == "linear":
        return settings.lr * (1 - done)
    return settings.lr * (1 + math.cos(math.pi * done)) / 2


class Loop:
    """The state of one run: its model, optimizer, data and metrics."""

    def __init__(self, run: Run, folder: Path, device: torch.device, reporter: Reporter) -> None:
        self.run, self.settings, self.folder = run, run.settings, folder
        self.device, self.reporter = device, reporter
        if device.type == "cpu":
            check_memory(run)
        divide = {"test": run.task.split, "validation": run.task.validation}[self.settings.held_out]
        self.stream, self.test = divide(
            seed=self.settings.seed, train=self.settings.train, test=self.settings.test
        )
        if not self.test:
            raise ConfigError(
                f"{task_name(run.task)} has no example to test on: more are needed, since one in "
                f"eight is for {'testing' if self.settings.held_out == 'test' else 'validation'}"
            )
        check_examples(run.task, self.test)
        self.stopping = self._stopping_examples()
        self.model = build_model(run).to(device)
        self.forward = torch.compile(self.model) if self.settings.compile else self.model
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=self.settings.bf16)
        self.optimizer = _adamw(self.model, self.settings)
        self.step, self.seconds_before = load_state(
            folder, self.model, self.optimizer, run.described()
        )
        self.metrics = folder / "metrics.jsonl"
        kept = [line for line in read_metrics(self.metrics) if line["step"] <= self.step]
        write_text(self.metrics, "".join(json_text(line) + "\n" for line in kept))
        self.reached = self._reaches_target(kept[-1] if kept else {})
        self.late = Late(device)
        self.waited = 0.0
        self.start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds of training so far, including those before a resume."""
        return self.seconds_before + time.perf_counter() - self.start

    def run_steps(self) -> Score:
        """Train until the last step, or until the target accuracy, and return the last
        evaluation."""
        steps, size = range(self.step, self.settings.steps), self.settings.batch
        pin, score = self.device.type == "cuda", None
        batches = prefetched(self.stream, steps, size, pin=pin)
        with noted_signals() as asked_to_stop, closing(batches):
            while self.step < self.settings.steps and not self.reached:
                asked = time.perf_counter()
                batch = next(batches)
                self.waited += time.perf_counter() - asked
                self._train_step(batch.to(self.device))
                if self.step % self.settings.eval_every == 0 or self.step == self.settings.steps:
                    score = self._evaluate()
                    self._save()
                elif asked_to_stop:
                    self._check_late(all_of_them=True)
                    self._save()
                if asked_to_stop and self.step < self.settings.steps and not self.reached:
                    raise Stopped(self.step, asked_to_stop[0])
        return score or self._evaluate()

    def _stopping_examples(self) -> Examples | None:
        if self.settings.target_accuracy is None:
            return None
        return self.run.task.stopping(self.stream, count=len(self.test))

    def _train_step(self, batch: Batch) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step)
        with self.autocast:
            logits = self.forward(batch.tokens)
        loss = loss_of(logits, batch)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(trained_parameters(self.model), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.late.put(self.step, loss, norm)
        self._check_late()
        if self.step % _LOG_EVERY == 0 or self.step in (1, self.settings.steps):
            lr = learning_rate(self.settings, self.step - 1)
            self._log({"loss": loss.item(), "grad_norm": norm.item(), "lr": lr})

    def _check_late(self, *, all_of_them: bool = False) -> None:
        seen = self.late.take(all_of_them=all_of_them)
        if seen is not None:
            step, (loss, norm) = seen
            self._check_finite(step, {"loss": loss, "gradient norm": norm})

    def _check_finite(self, step: int, values: dict[str, float]) -> None:
        """End a diverged run before it saves."""
        for name, value in values.items():
            if not math.isfinite(value):
                raise RunFailed(
                    f"the {name} of {task_name(self.run.task)} is not finite at step {step}: "
                    f"lower --lr, which is {self.settings.lr:g}"
                )

    def _evaluate(self) -> Score:
        self._check_late(all_of_them=True)
        score = evaluate(self.forward, self.test, self.device, self.autocast)
        self._check_finite(self.step, {"test loss": score.loss})
        line = {"test_loss": score.loss, "accuracy": score.accuracy, "exact": score.exact}
        if self.stopping is not None:
            decides = evaluate(self.forward, self.stopping, self.device, self.autocast)
            line["stopping_accuracy"] = decides.accuracy
        self._log(line)
        self.reached = self._reaches_target(line)
        return score

    def _reaches_target(self, line: dict[str, float]) -> bool:
        """Return whether the target is reached, never by the reported accuracy on the test set."""
        target = self.settings.target_accuracy
        return target is not None and line.get("stopping_accuracy", -1.0) >= target

    def _log(self, values: dict[str, float]) -> None:
        line = {"step": self.step, **values, "seconds": round(self.seconds, 3)}
        with open(self.metrics, "a", opener=regular) as file:
            file.write(json_text(line) + "\n")
        self.reporter.show(line)

    def _save(self) -> None:
        save_state(
            self.folder,
            self.model,
            self.optimizer,
            step=self.step,
            seconds=self.seconds,
            described=self.run.described(),
        )

    def result(self, score: Score) -> dict[str, Any]:
        """Return the contents of result.json."""
        trainable = count(trained_parameters(self.model))
        place = (self.forward, self.device, self.autocast)
        by_length = accuracy_by_length(self.run, score, *place)
        result = {
            "task": task_name(self.run.task),
            "variant": self.settings.name,
            **asdict(score),
            "slices": score.slices | by_length,
            "trainable_params": trainable,
            "params": count(self.model.parameters()),
            "steps": self.step,
            "seconds": round(self.seconds, 3),
            "seconds_waited_for_data": round(self.waited, 3),
            "device": str(self.device),
            "settings": self.run.described(),
        }
        figures = self.run.task.figures(score, trainable)
        taken = sorted(figures.keys() & _RESERVED)
        if taken:
            raise ConfigError(
                f"{task_name(self.run.task)} calls a figure {taken[0]!r}, which every result has: "
                "give it another name in its `figures`"
            )
        return result | figures


def _adamw(model: nn.Module, settings: Settings) -> torch.optim.AdamW:
    """Build AdamW with weight decay for matrices only, not for norms and biases."""
    params = trained_parameters(model)
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.lr,
        betas=(0.9, settings.beta2),
        fused=True,
    )


def _save_weights(model: nn.Module, folder: Path) -> None:
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}

    def write(part: Path) -> None:
        save_file(weights, part)
        shutil.copymode(folder / "metrics.jsonl", part)  # the owner alone could read it

    replace_file(folder / "model.safetensors", write)

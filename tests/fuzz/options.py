"""Invalid options of every command. An accidentally valid one is small, or cannot start."""

import random
from pathlib import Path
from typing import Any

from mixit_titan.analysis.command import AnalyzeArguments
from mixit_titan.bench.arguments import BenchArguments
from mixit_titan.cli import COMMANDS, TrainArguments
from mixit_titan.comparison.command import CompareArguments
from mixit_titan.data.command import PrepareArguments
from mixit_titan.demo import DemoArguments
from mixit_titan.doctor.command import DoctorArguments
from mixit_titan.drill.arguments import DrillArguments
from mixit_titan.evaluation.command import EvalArguments
from mixit_titan.export.command import ExportArguments
from mixit_titan.generation.command import GenerateArguments
from mixit_titan.ladder.command import LadderArguments
from mixit_titan.options import option_types
from mixit_titan.params import ParamsArguments
from mixit_titan.reproduction.command import ReproduceArguments
from mixit_titan.slurm.arguments import SubmitArguments
from mixit_titan.slurm.status import StatusArguments
from mixit_titan.suite.plan import SuiteArguments
from mixit_titan.tasks.command import TaskArguments
from mixit_titan.tasks.options import preset_run
from mixit_titan.tasks.sweep import SweepArguments
from mixit_titan.tasks.task import TASKS
from tests.fuzz.attempt import SECONDS
from tests.fuzz.case import WORKS, Case
from tests.fuzz.good import Good
from tests.fuzz.values import TEXTS, bad_stack, bad_value, mangled

NOWHERE = "below_a_file/out"
_TINY = ["--steps", "1", "--batch", "2", "--width", "8", "--heads", "1", "--layers", "1"]
_TINY += ["--test", "4", "--out", "out"]
_LONG = ("--steps", "--out", "--wandb", "--compile", "--show", "--test", "--batch")
"""Of a task: what would make it a long one, or leave the folder."""


def option(rng: random.Random, folder: Path, good: Good) -> Case:
    """A command with one to three options that may be wrong."""
    (folder / "below_a_file").write_text("")
    name = rng.choice([*FORMS])
    form, base, fixed = FORMS[name]
    words = [word.format(good=good) for word in base]
    if words and not words[0].startswith("-") and rng.random() < _NAMED:
        words[0] = rng.choice([*TEXTS, mangled(rng, words[0]), str(good.text), str(good.data)])
    command = name.partition(" ")[0]
    return Case([command, *words, *_words(rng, form, fixed)], may_leave=("out", "analysis"))


def task_option(rng: random.Random, folder: Path, good: Good) -> Case:
    """A task that is trained for a step if nobody refuses it."""
    name = rng.choice([task for task in TASKS if task != "yelp"])
    default = TaskArguments(run=preset_run(name, "cpu", []))
    given = _words(rng, default, _LONG)
    deep = any(word.startswith("--layers") for word in given)  # a thousand may be asked for
    seconds = WORKS if deep else SECONDS
    return Case(["task", name, *_TINY, *given], may_leave=("out",), seconds=seconds)


def words(rng: random.Random, folder: Path, good: Good) -> Case:
    """Anything."""
    (folder / "below_a_file").write_text("")
    found = [rng.choice([*COMMANDS, *TEXTS])]
    for _ in range(rng.randint(0, 4)):
        text = rng.choice([*TEXTS, "--help", "--version", "-h", "--out", "--config", "--json"])
        found.append(rng.choice([text, f"--{text}", mangled(rng, text)]))
    if found[0] in _WITHOUT_WORDS:  # they would do what they are for
        found += ["--out", NOWHERE]
    return Case(found, may_leave=("out",))


_NAMED = 0.15
"""How often something else is named in the place of the folder or file that a command is for."""
_WITHOUT_WORDS = ("demo", "bench", "ladder", "reproduce")
_SMALL = [
    "--variants",
    "standard",
    "--width",
    "16",
    "--heads",
    "1",
    "--layers",
    "1",
    "--vocab",
    "64",
]
_STACKS = ("--stack", "--stacks", "--variants", "--array-variants")
FORMS: dict[str, tuple[Any, list[str], tuple[str, ...]]] = {
    "train": (TrainArguments, ["{good.config}", "--dump_folder", NOWHERE], ()),
    "params": (ParamsArguments, [], ()),
    "prepare": (
        PrepareArguments,
        ["{good.text}", "--tokenizer", "bytes", "--out", "out", "--workers", "1"],
        ("--out",),
    ),
    "submit": (SubmitArguments, ["{good.config}", "--dry-run", "--gpus-per-node", "0"], ()),
    "status": (StatusArguments, ["{good.run}"], ()),
    "drill": (DrillArguments, ["{good.config}", "--out", NOWHERE], ("--out",)),
    "demo": (DemoArguments, ["--out", NOWHERE], ("--out",)),
    "sweep": (SweepArguments, ["addition", "--out", NOWHERE], ("--out",)),
    "suite": (SuiteArguments, ["state", "--only", "parity", "--out", NOWHERE], ("--out",)),
    "bench": (BenchArguments, [*_SMALL, "--out", NOWHERE], ("--out", "--limits")),
    "generate": (GenerateArguments, ["{good.run}", "--prompt", "The", "--tokens", "2"], ()),
    "eval": (
        EvalArguments,
        ["{good.run}", "--text", "{good.text}", "--out", "out"],
        ("--out", "--nproc"),
    ),
    "eval on tasks": (
        EvalArguments,
        ["{good.run}", "--tasks", "{good.tasks}", "--limit", "1", "--out", "out"],
        ("--out", "--nproc", "--text"),
    ),
    "compare": (CompareArguments, ["{good.run}", "{good.twin}", "--out", "out"], ("--out",)),
    "export": (ExportArguments, ["{good.run}", "--out", "out"], ("--out",)),
    "analyze": (AnalyzeArguments, ["covariance", "{good.task}", "--out", "out"], ("--out",)),
    "ladder": (LadderArguments, ["--out", NOWHERE], ("--out",)),
    "reproduce": (ReproduceArguments, ["--out", NOWHERE], ("--out",)),
    "doctor": (DoctorArguments, ["--json"], ()),
}
"""Command -> its form, words with which it does little or nothing, and options to leave alone. What
is after the first word of a name tells two uses of a command apart."""


def _words(rng: random.Random, form: Any, fixed: tuple[str, ...]) -> list[str]:
    types = {name: hint for name, hint in option_types(form) if name not in fixed}
    found: list[str] = []
    for _ in range(rng.randint(1, 3) if types else 0):
        name = rng.choice([*types])
        stack = name in _STACKS and rng.random() < 0.7
        value = bad_stack(rng) if stack else bad_value(rng, types[name])
        if rng.random() < 0.05:
            name = mangled(rng, name)
        shape = rng.random()
        found += [name] if shape < 0.1 else [f"{name}={value}"] if shape < 0.6 else [name, value]
    return found

"""The commands of README.md and docs/, and what reads them: nothing is run."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from mixit_titan import config_registry
from mixit_titan.bench.arguments import read_arguments
from mixit_titan.cli import COMMANDS
from mixit_titan.config.plan import plan_run
from mixit_titan.config.ranks import own_ranks
from mixit_titan.config.toml import check_options
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.hardware import GPUS
from mixit_titan.options import option_types, read_known_options, read_options
from mixit_titan.reference.commands import FORMS
from mixit_titan.slurm.arguments import SubmitArguments
from mixit_titan.suite.plan import suite_cells
from mixit_titan.tasks.command import TaskArguments
from mixit_titan.tasks.options import parse, preset_run
from mixit_titan.tasks.sweep import grid_points
from mixit_titan.tasks.task import task_class

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_STARTS = ("mixit-titan ", "torchrun ", "srun ", "sbatch ", "make ", "python ", "cp ", "mkdir ")
_SHIPPED = re.compile(r"(train_configs|slurm|benchmarks|examples)/[\w.]*\w")
_STAND_FOR = {
    "CONFIG.toml": "train_configs/debug_standard.toml",
    "my_tasks:Copy": "parity",  # which has --length, too
    "NAME": "mad",
}
"""What a page says, and something of that kind that is there."""


def commands(text: str) -> list[str]:
    """Those of the code blocks, each on one line."""
    found: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        command = line.strip().removeprefix("$ ")
        if not line.startswith("    ") or not command.startswith(_STARTS):
            continue
        while command.endswith("\\") or not _is_closed(command):
            command = f"{command.removesuffix(chr(92))} {next(lines).strip()}"
        found.append(command)
    return found


def inline_commands(text: str) -> list[str]:
    """Those within a sentence, which need not be complete."""
    return [" ".join(words.split()) for words in re.findall(r"`(mixit-titan [^`]+)`", text)]


def refusals(text: str) -> dict[str, str]:
    """Command -> the sentence that a page shows it to end in; it may take its data."""
    shown = re.findall(r"^    \$ (mixit-titan .*)\n    mixit-titan: (.*)$", text, re.MULTILINE)
    return dict(shown)


def check_command(command: str) -> None:
    """A ConfigError or an AssertionError where it could not be typed as it is."""
    if "..." in command or "[-" in command or " T " in command:  # a synopsis
        check_names(command)
        return
    words = [_STAND_FOR.get(word, word) for word in shlex.split(command, comments=True)]
    words = words[: next((n for n, word in enumerate(words) if word in (">", "|")), None)]
    for word in words[:-1] if words[0] == "cp" else words:
        if _SHIPPED.fullmatch(word):
            assert (ROOT / word).exists(), f"there is no {word}"
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert rest[0] in targets, f"no target of the Makefile: {rest[0]}"
    elif program == "sbatch":
        _check_job(rest)
    elif "torchtitan.train" in rest:
        assert hasattr(config_registry, rest[rest.index("--config") + 1])
    elif "mixit_titan" in rest:
        _check_words(rest[rest.index("mixit_titan") + 1 :])
    elif program in ("mixit-titan", "srun"):
        _check_words(words[words.index("mixit-titan") + 1 :])


def check_names(command: str) -> None:
    """The same for the names in it alone: of the command, and of its options."""
    name = command.split()[1]
    if name in ("COMMAND", "--help", "--version"):
        return
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    if name == "task":
        return  # its options are its task's
    known = [option for option, _ in option_types(FORMS[name])]
    for option in re.findall(r"(?<!\S)\[?(--[a-z][\w-]*)(?![\w.-])", command):
        if option not in known and "." not in option:
            raise unknown("option", option, known)


def _is_closed(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def _check_words(words: list[str]) -> None:
    name, *rest = words
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    _READERS.get(name, _read)(name, rest)


def _read(name: str, words: list[str]) -> None:
    form = FORMS[name]
    args = read_options(form, words, prog=f"mixit-titan {name}")
    if hasattr(form, "check"):
        args.check()


def _read_run(name: str, words: list[str]) -> None:
    args, overrides = read_known_options(FORMS[name], words, prog=f"mixit-titan {name}")
    if getattr(args, "slurm", False):  # as `drill` takes the flags of submit
        _, overrides = read_known_options(SubmitArguments, [args.config, *overrides], prog="drill")
    check_options(overrides, FORMS[name])
    if args.config is None:
        assert not overrides
        return
    path = str(ROOT / args.config)
    on_gpus = "debug_" not in path and "wikitext2" not in path
    ranks = own_ranks(path, overrides) if on_gpus else getattr(args, "nproc", None) or 1
    plan_run(path, overrides, world_size=ranks, on_gpus=on_gpus, gpu=GPUS["H100"])


def _read_task(_: str, words: list[str]) -> None:
    name, *rest = words
    default = TaskArguments(run=preset_run(name, "cpu", rest))
    parse(TaskArguments[task_class(name)], default, name, rest).run.check()


def _read_sweep(_: str, words: list[str]) -> None:
    grid_points(read_options(FORMS["sweep"], words, prog="mixit-titan sweep"))


def _read_suite(_: str, words: list[str]) -> None:
    suite_cells(read_options(FORMS["suite"], words, prog="mixit-titan suite"))


def _read_bench(_: str, words: list[str]) -> None:
    args = read_arguments(words)
    assert args.config is None or (ROOT / args.config).exists()


_READERS: dict[str, Callable[[str, list[str]], None]] = {
    **dict.fromkeys(("train", "submit", "drill", "params"), _read_run),
    "task": _read_task,
    "sweep": _read_sweep,
    "suite": _read_suite,
    "bench": _read_bench,
}


def _check_job(words: list[str]) -> None:
    """What a job script passes on to its command."""
    script = next(word for word in words if word.endswith(".sbatch"))
    rest = words[words.index(script) + 1 :]
    command = {"pretrain": "train", "task": "task", "bench": "bench"}.get(Path(script).stem)
    if command:
        _check_words([command, *rest])


def problems(page: Path) -> Iterator[str]:
    """One line for each command of a page that could not be typed."""
    text = page.read_text()
    refused = refusals(text)
    for check, found in ((check_command, commands(text)), (check_names, inline_commands(text))):
        for command in found:
            try:
                check(command)
            except (ConfigError, AssertionError) as error:
                if refused.get(command) == str(error):
                    continue
                yield f"{page.relative_to(ROOT)}: {command}: {error}"

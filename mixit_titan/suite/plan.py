"""From a command line to the cells of a suite, each one checked before the first run."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.stack import read_stack
from mixit_titan.model.variants import VARIANTS
from mixit_titan.ranges import Range
from mixit_titan.suite.cells import Cell
from mixit_titan.suite.suites import Problem, find_suite
from mixit_titan.tasks.baselines import BASELINES
from mixit_titan.tasks.choice import FIRST_SEED
from mixit_titan.tasks.grid import fixed_words, option_words, read_grid
from mixit_titan.tasks.models import model_config
from mixit_titan.tasks.options import parse, preset_run
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.task import task_class

_FEWEST, _MOST = 2, 64  # layers to look for
_OWN = {
    **dict.fromkeys(("variant", "stack", "mixer"), "use --stacks"),
    "layers": "use --layers",
    "seed": "use --seeds and --first-seed",
    "held_out": "settings are chosen on validation, and reported on the test set",
}


@dataclass(frozen=True, kw_only=True)
class SuiteArguments:
    """Run a family of synthetic tasks for several stacks, each with settings that were chosen for
    it on validation.

    Example: mixit-titan suite mad --stacks standard,mixit,"mixit standard" --out runs/mad
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """mad: the six tasks of MAD. recall: MQAR with 4, 8 and 16 pairs, and induction. state: parity,
    modular sums, Dyck-k and sorting."""
    stacks: tuple[str, ...] = ("standard", "mixit", "mixit standard", "standard mixit")
    """What to compare, with commas between them: variants, stacks, lstm, linear."""
    layers: Annotated[int | None, Range(least=1, most=1000)] = None
    """Of every model (default: the fewest that fill every stack, and 2 at least)."""
    seeds: Annotated[int, Range(least=1, most=FIRST_SEED)] = 3
    """How many seeds are reported. More add to what is there."""
    first_seed: Annotated[int, Range(least=0, most=FIRST_SEED - 1)] = 0
    """The first of them. Settings are chosen with seed 10000, which is not reported."""
    scale: Literal["cpu", "paper"] = "cpu"
    """The presets of the tasks: sizes for two cores, or those of their papers."""
    only: tuple[str, ...] = ()
    """Some of the suite's tasks, by their names in the table."""
    grid: tuple[str, ...] = ()
    """key=value,value ...: what is tried for every task and stack, in place of the suite's own."""
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()
    """key=value ...: options that differ from the presets in all runs."""
    jobs: Annotated[int, Range(least=1, most=4096)] = 2
    """Runs at a time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    list: bool = False
    """Print the commands of all runs that can be started and are not done, one per line, for
    slurm/points.sbatch, instead of running them."""
    out: Path | None = None
    """Folder of the runs and of suite.json, suite.md and suite.png (default: runs/suite/NAME)."""

    @property
    def folder(self) -> Path:
        return Path("runs/suite") / self.name if self.out is None else self.out

    @property
    def tried(self) -> dict[str, tuple[str, ...]]:
        """The grid, as it is written."""
        grid = read_grid(self.grid) or find_suite(self.name).grid(self.scale)
        return {key: tuple(values) for key, values in grid.items()}


def suite_cells(args: SuiteArguments) -> list[Cell]:
    """Task by task, and within a task stack by stack."""
    problems = _problems(args)
    if args.first_seed + args.seeds > FIRST_SEED:
        raise ConfigError(
            f"--first-seed {args.first_seed} with its --seeds reaches {FIRST_SEED:,}, from where "
            "on seeds are for choosing settings: take lower or fewer ones"
        )
    stacks = _listed(args.stacks)
    if not stacks:
        raise ConfigError("--stacks names none: write some, as in --stacks standard,mixit")
    layers = args.layers or fewest_layers(stacks)
    names = [Settings(**_model(stack), layers=layers).name for stack in stacks]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--stacks has {name!r} twice: leave one of them out")
    grid, fixed = args.tried, read_grid(args.fixed)
    _check_keys(problems, args.scale, grid, fixed)
    words = [*fixed_words(fixed), "--layers", str(layers)]
    return [
        Cell(
            problem=name,
            places=_places(problem, args.scale, stack, grid, words),
            keys=tuple(grid),
            seeds=range(args.first_seed, args.first_seed + args.seeds),
            out=args.folder,
            device=args.device,
        )
        for name, problem in problems.items()
        for stack in stacks
    ]


def fewest_layers(stacks: list[str]) -> int:
    """How many layers every stack fills; the sentence of the one that cannot be."""
    for layers in range(_FEWEST, _MOST + 1):
        try:
            for stack in stacks:
                if stack not in BASELINES:
                    read_stack(stack, layers)
        except ConfigError as error:
            problem = error
        else:
            return layers
    raise problem


def _places(
    problem: Problem, scale: str, stack: str, grid: dict[str, tuple[str, ...]], words: list[str]
) -> tuple[Run, ...]:
    """The run of each place, with nothing of what was chosen for a variant before."""
    name, runs = problem.task, []
    ((option, value),) = _model(stack).items()
    words = [f"--{option}={value}", *fixed_words(problem.options(scale)), *words]
    default = preset_run(name, scale, words, chosen=False)
    for values in itertools.product(*grid.values()):
        place = [w for item in zip(grid, values, strict=True) for w in option_words(*item)]
        run = parse(Run[task_class(name)], default, name, [*words, *place]).named()
        run.check()
        model_config(run)
        runs.append(run)
    return tuple({run.hash: run for run in runs}.values())


def _model(stack: str) -> dict[str, str]:
    """The option that names it."""
    return {"variant" if stack in (*VARIANTS, *BASELINES) else "stack": stack}


def _problems(args: SuiteArguments) -> dict[str, Problem]:
    problems = find_suite(args.name).problems
    for name in _listed(args.only):
        if name not in problems:
            raise unknown(f"task of {args.name}", name, problems)
    return {
        name: each for name, each in problems.items() if name in (_listed(args.only) or problems)
    }


def _check_keys(
    problems: dict[str, Problem],
    scale: str,
    grid: dict[str, tuple[str, ...]],
    fixed: dict[str, list[str]],
) -> None:
    for key in grid | fixed:
        if key in _OWN:
            raise ConfigError(f"{key!r} is not for --grid and --set: {_OWN[key]}")
        if any(key in problem.options(scale) for problem in problems.values()):
            raise ConfigError(
                f"{key!r} tells the tasks of the suite apart: use --only to take some"
            )
        if key in grid and key in fixed:
            raise ConfigError(f"{key!r} is in --grid and in --set: leave one of them out")


def _listed(words: tuple[str, ...]) -> list[str]:
    return [name.strip() for word in words for name in word.split(",") if name.strip()]

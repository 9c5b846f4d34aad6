"""From a command line to the cells of a suite, all checked before the first run."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.fields import Group
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

_FEWEST, _MOST = 2, 64  # layers to try
_OWN = {
    **dict.fromkeys(("variant", "stack", "mixer"), "use --stacks"),
    "layers": "use --layers",
    "seed": "use --seeds and --first-seed",
    "held_out": "settings are chosen on validation, and the test set is reported",
}


@dataclass(frozen=True, kw_only=True)
class SuiteArguments:
    """Run a family of synthetic tasks for several stacks, with settings chosen on validation for
    each task and stack.

    Example: mixit-titan suite mad --stacks standard,mixit,"mixit standard" --out runs/mad
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """mad: the six tasks of MAD; recall: MQAR with 4, 8 and 16 pairs, and induction; state: parity,
    modular sums, Dyck-k and sorting."""
    stacks: Annotated[tuple[str, ...], Group("what is run")] = (
        *("standard", "mixit", "mixit standard", "standard mixit"),
    )
    """What to compare, separated by commas: variants, stacks, lstm, linear (default: standard,
    mixit, mixit standard, standard mixit)."""
    layers: Annotated[int | None, Range(least=1, most=1000)] = None
    """Layers of every model (default: the fewest that fill every stack, at least 2)."""
    seeds: Annotated[int, Range(least=1, most=FIRST_SEED)] = 3
    """How many seeds are reported; more seeds are added to finished runs."""
    first_seed: Annotated[int, Range(least=0, most=FIRST_SEED - 1)] = 0
    """The first reported seed. Settings are chosen with seed 10000, which is never reported."""
    scale: Annotated[Literal["cpu", "paper"], Group("tasks and settings")] = "cpu"
    """The presets of the tasks: sizes for two CPU cores, or those of their papers."""
    only: tuple[str, ...] = ()
    """Only these tasks of the suite, by their names in its table (default: all)."""
    grid: Annotated[tuple[str, ...], Group("settings")] = ()
    """The grid to try for every task and stack, as key=value,value ... (default: the suite's
    own)."""
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()
    """Options that differ from the presets in all runs, as key=value ..."""
    jobs: Annotated[int, Range(least=1, most=4096), Group("how it runs")] = 2
    """How many runs train at the same time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU if there is one."""
    list: bool = False
    """Print the commands of all unfinished runs that can be started, one per line, for
    slurm/points.sbatch, instead of running them."""
    out: Path | None = None
    """Folder for the runs, suite.json, suite.md and suite.png (default: runs/suite/NAME)."""

    @property
    def folder(self) -> Path:
        """The output folder."""
        return Path("runs/suite") / self.name if self.out is None else self.out

    @property
    def tried(self) -> dict[str, tuple[str, ...]]:
        """The grid, as key -> the values to try."""
        grid = read_grid(self.grid) or find_suite(self.name).grid(self.scale)
        return {key: tuple(values) for key, values in grid.items()}


def suite_cells(args: SuiteArguments) -> list[Cell]:
    """All cells, ordered by task and then by stack; a ConfigError if any cannot be run."""
    problems = _problems(args)
    if args.first_seed + args.seeds > FIRST_SEED:
        raise ConfigError(
            f"--first-seed {args.first_seed} with its --seeds reaches {FIRST_SEED:,}, from where "
            "on seeds are reserved for choosing settings: use lower or fewer seeds"
        )
    stacks = _listed(args.stacks)
    if not stacks:
        raise ConfigError("--stacks is empty: give some, as in --stacks standard,mixit")
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
    """The smallest number of layers that every stack fills; otherwise a ConfigError."""
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
    """The run of each point of the grid, without the settings once chosen for a variant."""
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
    """The option that selects a stack, with its value."""
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
                f"{key!r} distinguishes the tasks of the suite: use --only to select tasks"
            )
        if key in grid and key in fixed:
            raise ConfigError(f"{key!r} is in --grid and in --set: leave one of them out")


def _listed(words: tuple[str, ...]) -> list[str]:
    return [name.strip() for word in words for name in word.split(",") if name.strip()]

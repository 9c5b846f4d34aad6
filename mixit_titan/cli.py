"""The mixit-titan command: one small function per subcommand.

What a command needs is imported when it is called: help, a wrong name and `params` answer without
torch.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import tyro

from mixit_titan import __version__
from mixit_titan.errors import one_sentence, unknown
from mixit_titan.gpus import hide_gpus
from mixit_titan.imports import quick_imports
from mixit_titan.options import check_named, read_known_options, read_options
from mixit_titan.ranges import Range


def main() -> None:
    """Dispatch to a subcommand; a user's mistake ends in one sentence and exit code 2."""
    arguments = sys.argv[1:]
    name = arguments[0] if arguments else "--help"
    with one_sentence():
        if name in ("-h", "--help"):
            print(_usage())
        elif name == "--version":
            print(__version__)
        elif name not in COMMANDS:
            raise unknown("command", name, COMMANDS)
        else:
            COMMANDS[name](arguments[1:])


def train(arguments: list[str]) -> None:
    from mixit_titan.config.toml import check_options, read_run

    args, overrides = read_known_options(TrainArguments, arguments, prog="mixit-titan train")
    check_options(overrides, TrainArguments)
    if read_run(args.config, overrides).get("device") == "cpu":
        hide_gpus()  # before torch is imported, and looks for them

    with quick_imports():
        from mixit_titan.config.run import run_train

    run_train(args.config, overrides, args.nproc)


@dataclass
class TrainArguments:
    """Train with torchtitan's Trainer. Any key of the file can be overridden on the command line.

    Example: mixit-titan train train_configs/debug_mixit.toml --training.steps 20
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")]
    """A TOML file, such as one of train_configs/. docs/training.md lists its keys."""
    nproc: Annotated[int | None, Range(least=1, most=4096)] = None
    """Ranks on this machine (default: one per GPU, else 1). Ignored inside torchrun and srun."""


def params(arguments: list[str]) -> None:
    from mixit_titan.params import params_command

    params_command(arguments)


def prepare(arguments: list[str]) -> None:
    from mixit_titan.data.command import PrepareArguments, run_prepare

    run_prepare(read_options(PrepareArguments, arguments, prog="mixit-titan prepare"))


def demo(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.demo import DemoArguments, run_demo

    run_demo(read_options(DemoArguments, arguments, prog="mixit-titan demo"))


def submit(arguments: list[str]) -> None:
    from mixit_titan.config.toml import check_options
    from mixit_titan.slurm.arguments import SubmitArguments

    with quick_imports():
        from mixit_titan.slurm.submit import submit as submit_run

    # Its ranges are checked with all else that --dry-run gathers.
    args, overrides = read_known_options(
        SubmitArguments, arguments, prog="mixit-titan submit", checked=False
    )
    check_options(overrides, SubmitArguments)
    submit_run(args, overrides)


def status(arguments: list[str]) -> None:
    from mixit_titan.slurm.status import StatusArguments, show_status

    show_status(read_options(StatusArguments, arguments, prog="mixit-titan status"))


def drill(arguments: list[str]) -> None:
    from mixit_titan.config.toml import read_run
    from mixit_titan.drill.arguments import DrillArguments

    check_named(arguments, "--only")
    args, others = read_known_options(DrillArguments, arguments, prog="mixit-titan drill")
    if read_run(args.config, others).get("device") == "cpu":
        hide_gpus()  # before torch is imported

    with quick_imports():
        from mixit_titan.drill.command import run_drill

    run_drill(args, others)


def task(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.tasks.command import task_command

    task_command(arguments)


def sweep(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.tasks.sweep import sweep_command

    sweep_command(arguments)


def suite(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.suite.command import suite_command

    suite_command(arguments)


def bench(arguments: list[str]) -> None:
    from mixit_titan.bench.arguments import means_the_cpu, read_arguments

    args = read_arguments(arguments)
    if means_the_cpu(args):
        hide_gpus()  # before torch is imported

    with quick_imports():
        from mixit_titan.bench.command import run_bench

    run_bench(args)


def generate(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.generation.command import GenerateArguments, run_generate

    run_generate(read_options(GenerateArguments, arguments, prog="mixit-titan generate"))


def evaluate(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.evaluation.command import EvalArguments, run_eval

    run_eval(read_options(EvalArguments, arguments, prog="mixit-titan eval"), arguments)


def export(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.export.command import ExportArguments, run_export

    run_export(read_options(ExportArguments, arguments, prog="mixit-titan export"))


def analyze(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.analysis.command import AnalyzeArguments, run_analyze

    run_analyze(read_options(AnalyzeArguments, arguments, prog="mixit-titan analyze"))


def compare(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.comparison.command import CompareArguments, run_compare

    run_compare(read_options(CompareArguments, arguments, prog="mixit-titan compare"))


def ladder(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.ladder.command import LadderArguments, run_ladder

    run_ladder(read_options(LadderArguments, arguments, prog="mixit-titan ladder"))


def reproduce(arguments: list[str]) -> None:
    with quick_imports():
        from mixit_titan.reproduction.command import ReproduceArguments, run_reproduce

    run_reproduce(read_options(ReproduceArguments, arguments, prog="mixit-titan reproduce"))


def doctor(arguments: list[str]) -> None:
    from mixit_titan.doctor.command import DoctorArguments, run_doctor

    run_doctor(read_options(DoctorArguments, arguments, prog="mixit-titan doctor"))


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "params": params,
    "prepare": prepare,
    "submit": submit,
    "status": status,
    "drill": drill,
    "demo": demo,
    "task": task,
    "sweep": sweep,
    "suite": suite,
    "bench": bench,
    "generate": generate,
    "eval": evaluate,
    "export": export,
    "analyze": analyze,
    "compare": compare,
    "ladder": ladder,
    "reproduce": reproduce,
    "doctor": doctor,
}


def _usage() -> str:
    return (
        "usage: mixit-titan COMMAND ...\n\n"
        "  train CONFIG.toml   train a variant with torchtitan's Trainer\n"
        "  params              parameters, FLOPs and memory of a model or a run\n"
        "  prepare SOURCE      turn a corpus into token shards\n"
        "  submit CONFIG.toml  give a training run to Slurm\n"
        "  status [FOLDER]     where runs are\n"
        "  drill CONFIG.toml   rehearse kills, hangs and full disks with a toy of a run\n"
        "  demo                train all five variants on this machine and compare them\n"
        "  task NAME           train and test a variant on one small task, or show its examples\n"
        "  sweep TASK          a grid of settings, variants and seeds on one task\n"
        "  suite NAME          a family of synthetic tasks for several stacks\n"
        "  bench [CONFIG.toml] throughput of the variants, beside the ratio of their FLOPs\n"
        "  generate RUN_DIR    text from a trained model\n"
        "  eval RUN_DIR        a checkpoint on lm-eval's tasks, or on any text\n"
        "  export RUN_DIR      a trained model as a Hugging Face folder\n"
        "  analyze KIND [RUN]  look into a trained model, or test a theorem\n"
        "  compare RUN [RUN]   runs side by side, at equal tokens, FLOPs and seconds\n"
        "  ladder              sizes and budgets for each variant, fits, a forecast\n"
        "  reproduce           the paper's tables and figures again, beside the paper's\n"
        "  doctor              what this machine is, and whether it will do\n\n"
        "Each command explains itself: mixit-titan train --help"
    )

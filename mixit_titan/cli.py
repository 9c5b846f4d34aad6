"""The mixit-titan command: one small function per subcommand.

What a command needs is imported when it is called, so that help, a wrong name and `params` answer
without importing torch.
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
    """Dispatch to a subcommand. A user's mistake ends in one sentence and exit code 2."""
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
    """Run `mixit-titan train`, with GPUs hidden before torch is imported if the run is for the
    CPU."""
    from mixit_titan.config.toml import check_options, read_run

    args, overrides = read_known_options(TrainArguments, arguments, prog="mixit-titan train")
    check_options(overrides, TrainArguments)
    if read_run(args.config, overrides).get("device") == "cpu":
        hide_gpus()  # before torch is imported and looks for them

    with quick_imports():
        from mixit_titan.config.run import run_train

    run_train(args.config, overrides, args.nproc)


@dataclass
class TrainArguments:
    """Train a model with torchtitan's Trainer, or resume a run from its newest checkpoint. Any key
    of the file can be overridden on the command line: --section.key value.

    Example: mixit-titan train train_configs/debug_mixit.toml --training.steps 20
    """

    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")]
    """A TOML file, such as one of train_configs/. docs/training.md lists its keys."""
    nproc: Annotated[int | None, Range(least=1, most=4096)] = None
    """Ranks to start on this machine (default: one per GPU, else 1). Ignored inside torchrun and
    srun."""


def params(arguments: list[str]) -> None:
    """Run `mixit-titan params`."""
    from mixit_titan.params import params_command

    params_command(arguments)


def prepare(arguments: list[str]) -> None:
    """Run `mixit-titan prepare`."""
    from mixit_titan.data.command import PrepareArguments, run_prepare

    run_prepare(read_options(PrepareArguments, arguments, prog="mixit-titan prepare"))


def demo(arguments: list[str]) -> None:
    """Run `mixit-titan demo`."""
    with quick_imports():
        from mixit_titan.demo import DemoArguments, run_demo

    run_demo(read_options(DemoArguments, arguments, prog="mixit-titan demo"))


def submit(arguments: list[str]) -> None:
    """Run `mixit-titan submit`."""
    from mixit_titan.config.toml import check_options
    from mixit_titan.slurm.arguments import SubmitArguments

    with quick_imports():
        from mixit_titan.slurm.submit import submit as submit_run

    # Its ranges are checked together with everything else that --dry-run reports.
    args, overrides = read_known_options(
        SubmitArguments, arguments, prog="mixit-titan submit", checked=False
    )
    check_options(overrides, SubmitArguments)
    submit_run(args, overrides)


def status(arguments: list[str]) -> None:
    """Run `mixit-titan status`."""
    from mixit_titan.slurm.status import StatusArguments, show_status

    show_status(read_options(StatusArguments, arguments, prog="mixit-titan status"))


def drill(arguments: list[str]) -> None:
    """Run `mixit-titan drill`, with GPUs hidden before torch is imported if the run is for the
    CPU."""
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
    """Run `mixit-titan task`."""
    with quick_imports():
        from mixit_titan.tasks.command import task_command

    task_command(arguments)


def sweep(arguments: list[str]) -> None:
    """Run `mixit-titan sweep`."""
    with quick_imports():
        from mixit_titan.tasks.sweep import sweep_command

    sweep_command(arguments)


def suite(arguments: list[str]) -> None:
    """Run `mixit-titan suite`."""
    with quick_imports():
        from mixit_titan.suite.command import suite_command

    suite_command(arguments)


def bench(arguments: list[str]) -> None:
    """Run `mixit-titan bench`, with GPUs hidden before torch is imported if it is for the CPU."""
    from mixit_titan.bench.arguments import means_the_cpu, read_arguments

    args = read_arguments(arguments)
    if means_the_cpu(args):
        hide_gpus()  # before torch is imported

    with quick_imports():
        from mixit_titan.bench.command import run_bench

    run_bench(args)


def generate(arguments: list[str]) -> None:
    """Run `mixit-titan generate`."""
    with quick_imports():
        from mixit_titan.generation.command import GenerateArguments, run_generate

    run_generate(read_options(GenerateArguments, arguments, prog="mixit-titan generate"))


def evaluate(arguments: list[str]) -> None:
    """Run `mixit-titan eval`."""
    with quick_imports():
        from mixit_titan.evaluation.command import EvalArguments, run_eval

    run_eval(read_options(EvalArguments, arguments, prog="mixit-titan eval"), arguments)


def export(arguments: list[str]) -> None:
    """Run `mixit-titan export`."""
    with quick_imports():
        from mixit_titan.export.command import ExportArguments, run_export

    run_export(read_options(ExportArguments, arguments, prog="mixit-titan export"))


def analyze(arguments: list[str]) -> None:
    """Run `mixit-titan analyze`."""
    with quick_imports():
        from mixit_titan.analysis.command import AnalyzeArguments, run_analyze

    run_analyze(read_options(AnalyzeArguments, arguments, prog="mixit-titan analyze"))


def compare(arguments: list[str]) -> None:
    """Run `mixit-titan compare`."""
    with quick_imports():
        from mixit_titan.comparison.command import CompareArguments, run_compare

    run_compare(read_options(CompareArguments, arguments, prog="mixit-titan compare"))


def ladder(arguments: list[str]) -> None:
    """Run `mixit-titan ladder`."""
    with quick_imports():
        from mixit_titan.ladder.command import LadderArguments, run_ladder

    run_ladder(read_options(LadderArguments, arguments, prog="mixit-titan ladder"))


def reproduce(arguments: list[str]) -> None:
    """Run `mixit-titan reproduce`."""
    with quick_imports():
        from mixit_titan.reproduction.command import ReproduceArguments, run_reproduce

    run_reproduce(read_options(ReproduceArguments, arguments, prog="mixit-titan reproduce"))


def doctor(arguments: list[str]) -> None:
    """Run `mixit-titan doctor`."""
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
        "train language models:\n"
        "  demo                 train all five variants and compare them\n"
        "  prepare SOURCE       tokenize a corpus into shards\n"
        "  train CONFIG.toml    train a variant with torchtitan's Trainer\n"
        "  submit CONFIG.toml   submit a training run to Slurm\n"
        "  status [FOLDER ...]  show the state of runs\n"
        "  ladder               train several sizes and budgets, fit scaling laws\n\n"
        "train on synthetic tasks:\n"
        "  task NAME            train and test one variant on one task\n"
        "  sweep TASK           train a grid of settings, variants and seeds\n"
        "  suite NAME           run a family of tasks for several stacks\n"
        "  reproduce            reproduce the paper's tables and figures\n\n"
        "use a trained model:\n"
        "  generate RUN_DIR     generate text\n"
        "  eval RUN_DIR         evaluate a checkpoint on lm-eval's tasks or on a text\n"
        "  export RUN_DIR       export a model as a Hugging Face folder\n"
        "  analyze KIND [RUN]   analyze a trained model, or test a theorem\n"
        "  compare RUN [RUN]    compare runs at equal tokens, FLOPs and seconds\n\n"
        "plan and check:\n"
        "  doctor               check this machine: versions, GPUs, disk, Slurm\n"
        "  params               parameters, FLOPs and memory of a model or a run\n"
        "  bench [CONFIG.toml]  measure throughput, next to the FLOP ratio\n"
        "  drill CONFIG.toml    rehearse kills, hangs and full disks with a toy run\n\n"
        "Options of a command: mixit-titan COMMAND --help"
    )

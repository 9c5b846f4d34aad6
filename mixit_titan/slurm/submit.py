"""`mixit-titan submit`: freezes a run in its folder, checks it, and submits it with sbatch."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.config.checks import check_folder
from mixit_titan.config.plan import Plan, plan_run
from mixit_titan.config.ranks import own_ranks
from mixit_titan.config.run import find_data, with_data
from mixit_titan.config.toml import read_run
from mixit_titan.errors import ConfigError, Problems
from mixit_titan.files import write_json, write_text
from mixit_titan.model.hardware import find_gpu
from mixit_titan.model.stack import as_folder
from mixit_titan.model.variants import VARIANTS
from mixit_titan.reading import read_text
from mixit_titan.slurm.arguments import SIGNAL_MARGIN, SubmitArguments, check_numbers
from mixit_titan.slurm.cluster import (
    check_partition,
    check_sbatch,
    has_sbatch,
    send,
    site_defaults,
    site_file,
    try_script,
)
from mixit_titan.slurm.job_script import Directives, array_script, job_script, shipped_directives
from mixit_titan.slurm.memory import check_memory
from mixit_titan.versions import code_version


@dataclass
class _Run:
    folder: Path
    script: str


def submit(args: SubmitArguments, overrides: list[str]) -> None:
    """Check a run, freeze it in its folder and submit it; with --dry-run, only print the job script
    and all problems."""
    problems, runs, job, answers = Problems(gathered=args.dry_run), [], None, False
    with problems.noted():
        check_sbatch()
    check_numbers(args, problems)
    with problems.noted():
        directives = _directives(args)
        if has_sbatch():
            with problems.noted():
                check_partition(directives["partition"], nodes=args.nodes, time=args.time)
                answers = True
        runs, job = _plan_all(args, overrides, directives, problems)
    if args.dry_run:
        _show(job, problems, ask_slurm=answers)
        return
    assert job is not None  # otherwise a problem has been raised
    number = _freeze_and_send(args, runs, job)
    _report(number, runs, job)


def _show(job: _Run | None, problems: Problems, *, ask_slurm: bool) -> None:
    """Print the script, Slurm's answer to it, and the problems; exit with code 1 if there are
    any."""
    if job is not None:
        print(job.script)
    if ask_slurm and job is not None:
        with problems.noted():
            print(f"Nothing was submitted. Slurm says: {try_script(job.script)}")
    if problems.found:
        print(f"Nothing was submitted. {problems.text()}", file=sys.stderr)
        sys.exit(1)


def _plan_all(
    args: SubmitArguments, overrides: list[str], directives: Directives, problems: Problems
) -> tuple[list[_Run], _Run | None]:
    """The runs, and the job that is submitted: the only one, or an array of them."""
    if args.array_variants is None:
        run = _plan(args, overrides, None, directives, problems)
        return ([] if run is None else [run]), run
    variants = args.array_variants.split(",")
    if len(set(variants)) < len(variants):
        raise ConfigError(
            f"--array-variants is {args.array_variants!r}: name each variant once, because each "
            "has one folder"
        )
    base = _base_folder(args, overrides)
    with problems.noted():
        _check_new(base)
    # What is not a variant is read as a stack, such as that of the mixer `uniform`.
    keys = {n: "--model.variant" if n in VARIANTS else "--model.stack" for n in variants}
    each = {n: [*overrides, keys[n], n] for n in variants}
    planned = [_plan(args, each[n], base / as_folder(n), directives, problems) for n in variants]
    runs = [run for run in planned if run is not None]
    output = directives | {"job-name": base.name, "output": _output(base, "array_%A_%a.out")}
    about = f"The runs {', '.join(variants)}: `sbatch` this file to resume all of them."
    return runs, _Run(base, array_script([str(run.folder) for run in runs], output, about=about))


def _directives(args: SubmitArguments) -> Directives:
    """The directives that all runs of this submission share."""
    defaults = site_defaults()

    def chosen(name: str) -> str | None:
        return getattr(args, name) or defaults.get(f"SBATCH_{name.upper()}")

    few = args.nodes if args.min_nodes is None else args.min_nodes
    return shipped_directives("pretrain") | {
        "nodes": str(args.nodes) if few == args.nodes else f"{few}-{args.nodes}",
        "gpus-per-node": str(args.gpus_per_node) if args.gpus_per_node else None,
        "time": args.time,
        "signal": f"B:USR1@{args.save_seconds + SIGNAL_MARGIN}",
        "partition": chosen("partition"),
        "account": chosen("account"),
        "qos": chosen("qos"),
        "constraint": chosen("constraint"),
        "mail-user": args.mail,
        "mail-type": "END,FAIL,REQUEUE" if args.mail else None,
        "dependency": f"afterok:{args.after}" if args.after else None,
        "kill-on-invalid-dep": "yes" if args.after else None,
        "chdir": str(Path.cwd()),  # the config's paths are relative to it
    }


def _base_folder(args: SubmitArguments, overrides: list[str]) -> Path:
    """The folder of an array, in which each variant has its own."""
    table = read_run(args.config, overrides)
    return Path(str(table.get("dump_folder", f"runs/{Path(args.config).stem}"))).absolute()


def _check_new(folder: Path) -> None:
    if (folder / "job.sbatch").exists():
        raise ConfigError(
            f"{folder} is a run that has been submitted before: `sbatch {folder}/job.sbatch` "
            "resumes it; for a new one choose another --dump_folder"
        )


def _plan(
    args: SubmitArguments,
    overrides: list[str],
    folder: Path | None,
    directives: Directives,
    problems: Problems,
) -> _Run | None:
    """Check the run for every number of nodes that it may get, and write its job script. `folder`
    replaces the run's own. None if a problem leaves the run without a folder."""
    plan = None
    for ranks in _numbers_of_ranks(args, overrides):
        plan = _planned(args, overrides, ranks, problems)
    if plan is None:
        with problems.noted():
            find_data(args.config, overrides)
        if folder is None:
            return None
    else:
        folder = folder or Path(plan.dump_folder).absolute()
        plan.dump_folder = str(folder)
        _check_planned(plan, folder, problems)
    with problems.noted():
        _check_new(folder)
    script = job_script(
        "pretrain",
        directives | {"job-name": folder.name, "output": _output(folder / "logs", "job_%j.out")},
        settings={
            "RUN_FOLDER": str(folder),
            "SITE_ENV": str(site_file()),
            "PYTHON": sys.executable,
            "MAX_RESTARTS": str(args.max_restarts),
            "SAVE_SECONDS": str(args.save_seconds),
        },
        arguments=[str(folder / "config.toml"), *overrides],
        about="`sbatch` this file to resume the run. Written by mixit-titan submit.",
    )
    return _Run(folder, script)


def _numbers_of_ranks(args: SubmitArguments, overrides: list[str]) -> list[int]:
    few = args.nodes if args.min_nodes is None else args.min_nodes
    if not 1 <= few <= args.nodes or args.gpus_per_node < 0:
        return [own_ranks(args.config, overrides)]  # in a dry run, which has recorded the problem
    return [nodes * max(args.gpus_per_node, 1) for nodes in range(few, args.nodes + 1)]


def _planned(
    args: SubmitArguments, overrides: list[str], ranks: int, problems: Problems
) -> Plan | None:
    own, plan, gpu = Problems(gathered=problems.gathered), None, None
    on_gpus = args.gpus_per_node > 0
    with own.noted():
        gpu = find_gpu(args.gpu)
    with own.noted():
        plan = plan_run(
            args.config, overrides, world_size=ranks, on_gpus=on_gpus, gpu=gpu, problems=own
        )
    with own.noted():
        if on_gpus and not args.ignore_memory and not own.found:
            check_memory(plan, ranks=ranks, gpu=args.gpu)
    problems.add(own.found)
    return plan


def _check_planned(plan: Plan, folder: Path, problems: Problems) -> None:
    checkpoint = plan.sections.checkpoint
    with problems.noted():
        if checkpoint.load_step != -1 or not checkpoint.enable or checkpoint.load_only:
            raise ConfigError(
                "a submitted run resumes from its newest checkpoint: keep the defaults of "
                "checkpoint.enable, checkpoint.load_only and checkpoint.load_step"
            )
    with problems.noted():
        run = with_data(plan, problems)
        if folder.exists():
            check_folder(run)


def _output(folder: Path, name: str) -> str:
    return f"{str(folder).replace('%', '%%')}/{name}"


def _freeze_and_send(args: SubmitArguments, runs: list[_Run], job: _Run) -> str:
    """Write the run's folder and submit it. Nothing is left behind if writing fails or Slurm
    refuses it."""
    new = [run.folder for run in (job, *runs) if not run.folder.exists()]
    version, difference = code_version()
    command = shlex.join(["mixit-titan", *sys.argv[1:]])
    try:
        for run in runs:
            (run.folder / "logs").mkdir(parents=True, exist_ok=True)
            write_text(run.folder / "config.toml", read_text(args.config))
            write_text(run.folder / "job.sbatch", run.script)
            described = {**version, "command": command}
            write_json(run.folder / "code.json", described)
            if difference:
                write_text(run.folder / "code.diff", difference)
        write_text(job.folder / "job.sbatch", job.script)
        number = send(job.folder / "job.sbatch")
    except (OSError, ConfigError) as error:
        for folder in new:
            shutil.rmtree(folder, ignore_errors=True)
        for run in (job, *runs):
            (run.folder / "job.sbatch").unlink(missing_ok=True)
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{job.folder} cannot be written: {error}") from error
    for task, run in enumerate(runs):
        array = args.array_variants is not None
        write_text(run.folder / "job", f"{number}_{task}\n" if array else f"{number}\n")
    return number


def _report(number: str, runs: list[_Run], job: _Run) -> None:
    folders = " ".join(shlex.quote(os.path.relpath(run.folder)) for run in runs)
    log = shlex.quote(os.path.relpath(runs[0].folder)) + "/logs/job_*.out"
    again = shlex.quote(os.path.relpath(job.folder / "job.sbatch"))
    print(
        f"Submitted job {number}: {folders}\n"
        f"  watch    mixit-titan status {folders}\n"
        f"           tail -f {log}\n"
        f"  stop     scancel {number}\n"
        f"  resume   sbatch {again}"
    )

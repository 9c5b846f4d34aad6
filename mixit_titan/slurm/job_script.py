"""Fills in slurm/pretrain.sbatch for one run: its directives, its folder, its config."""

import shlex

from mixit_titan.config.shipped import shipped_jobs
from mixit_titan.errors import ConfigError

_MARK = "#SBATCH --"
Directives = dict[str, str | None]


def shipped_directives(name: str) -> Directives:
    """The directives of a shipped script: `{"nodes": "1", "requeue": "", ...}`."""
    lines = shipped_jobs()[name].read_text().splitlines()
    words = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def job_script(
    name: str,
    directives: Directives,
    *,
    settings: dict[str, str],
    arguments: list[str],
    about: str,
) -> str:
    """The shipped script `name` with these `directives` (None: left out), with `settings` as
    variables, and with `arguments` before those that sbatch is given. All values are quoted."""
    lines = shipped_jobs()[name].read_text().splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith(_MARK))
    variables = [f"{key}={shlex.quote(value)}" for key, value in settings.items()]
    head = [*_head(directives, about), *variables, f'set -- {shlex.join(arguments)} "$@"']
    return "\n".join([*head, *lines[last + 1 :], ""])


def array_script(folders: list[str], directives: Directives, *, about: str) -> str:
    """A job array whose tasks are the jobs in `folders`."""
    body = [
        f"folders=({shlex.join(folders)})",
        "folder=${folders[$SLURM_ARRAY_TASK_ID]}",
        'exec bash "$folder/job.sbatch" "$@" >>"$folder/logs/job_$SLURM_JOB_ID.out" 2>&1',
    ]
    directives = directives | {"array": f"0-{len(folders) - 1}"}
    return "\n".join([*_head(directives, about), *body, ""])


def _head(directives: Directives, about: str) -> list[str]:
    lines = [_line(key, value) for key, value in directives.items() if value is not None]
    comment = "".join(each if each.isprintable() else " " for each in about)  # on one line
    return ["#!/usr/bin/env bash", f"# {comment}", *lines]


def _line(key: str, value: str) -> str:
    if not value.isprintable():
        raise ConfigError(f"--{key} is {value!r}: it must be printable")
    return f"{_MARK}{key}={shlex.quote(value)}" if value else f"{_MARK}{key}"

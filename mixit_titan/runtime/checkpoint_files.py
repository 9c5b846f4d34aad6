"""Which checkpoints of a run are complete.

A checkpoint is written as `.unfinished-N` and renamed to `step-N` once all of it is on disk. A kill
leaves an unfinished one; a failing disk or a truncated copy can break a finished one. Neither is
ever loaded: an unfinished one is deleted, and a broken one is set aside as `.broken-N`.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from mixit_titan.log import logger
from mixit_titan.runtime.checkpoint_identity import read_identity
from mixit_titan.runtime.tensor_reader import DamagedCheckpoint, TensorReader

NO_OTHER = ", and there is no other to resume from: choose another --dump_folder to start again"


def unfinished(checkpoint: Path) -> Path:
    """The name of `step-N` while it is being written."""
    return checkpoint.with_name(checkpoint.name.replace("step-", ".unfinished-"))


def publish(checkpoint: Path) -> None:
    """Give a written checkpoint its final name. A previous one of that name is deleted last."""
    old = checkpoint.with_name(checkpoint.name.replace("step-", ".replaced-"))
    if checkpoint.exists():
        shutil.rmtree(old, ignore_errors=True)  # left behind by a kill
        checkpoint.rename(old)
    unfinished(checkpoint).rename(checkpoint)
    shutil.rmtree(old, ignore_errors=True)


def put_back(folder: Path) -> None:
    """Give a previous checkpoint its name again where a kill came before the new one could take
    it."""
    for old in folder.glob(".replaced-*"):
        checkpoint = folder / old.name.replace(".replaced-", "step-")
        if not checkpoint.exists():
            logger.info(f"Putting back {checkpoint}: it was not replaced completely")
            old.rename(checkpoint)


def newest_complete(folder: Path, *, before: int | None = None) -> int | None:
    """The step of the newest complete checkpoint, of those `before` a step if given. Newer ones
    that are broken are named in the log. The weights themselves are not read: a load may still find
    damage."""
    for step in sorted(steps(folder), reverse=True):
        if before is not None and step >= before:
            continue
        problem = problem_of(folder / f"step-{step}")
        if problem is None:
            return step
        logger.warning(f"Skipping the checkpoint {folder}/step-{step}: {problem}")
    return None


def newest_to_resume(folder: Path) -> int | None:
    """The newest complete checkpoint; None if nothing has been saved yet. If all are broken this
    raises, so that a run does not silently start again."""
    found, there = newest_complete(folder), steps(folder)
    if found is None and there:
        last = folder / f"step-{max(there)}"
        raise DamagedCheckpoint(last, f"{problem_of(last)}{NO_OTHER}")
    return found


def clear(folder: Path, newest: int | None) -> None:
    """Delete what a kill left behind, and set aside broken checkpoints that are newer than
    `newest`, because `keep_latest_k` counts names."""
    for rest in [*folder.glob(".unfinished-*"), *folder.glob(".replaced-*")]:
        logger.info(f"Deleting {rest}: it was not written completely")
        shutil.rmtree(rest, ignore_errors=True)
    for step in steps(folder):
        if newest is None or step > newest:
            set_aside(folder, step)


def set_aside(folder: Path, step: int) -> Path:
    """Rename a checkpoint so that the next save can take its name and nothing loads it. Nothing is
    deleted."""
    aside, again = folder / f".broken-{step}", 1
    while aside.exists():
        again += 1
        aside = folder / f".broken-{step}-{again}"
    (folder / f"step-{step}").rename(aside)
    return aside


def steps(folder: Path) -> list[int]:
    """The steps of all checkpoints, complete or not; weights in Hugging Face's format do not
    count."""
    return [step for step, is_hf in _saved(folder) if not is_hf]


def hugging_face_steps(folder: Path) -> list[int]:
    """The steps of weights in Hugging Face's format, with which a run can end (last_save_in_hf)."""
    return [step for step, is_hf in _saved(folder) if is_hf]


def _saved(folder: Path) -> Iterator[tuple[int, bool]]:
    for entry in folder.iterdir() if folder.is_dir() else ():
        name = re.fullmatch(r"step-(\d+)", entry.name)
        if name:
            yield int(name[1]), any(entry.glob("*.safetensors"))


def problem_of(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None: every byte that its metadata mentions must exist,
    and its identity must be readable if it has one."""
    try:
        pieces = TensorReader(checkpoint).read_metadata().storage_data.values()
        sizes: dict[str, int] = {}
        for piece in pieces:
            end = piece.offset + piece.length
            sizes[piece.relative_path] = max(end, sizes.get(piece.relative_path, 0))
        for name, size in sizes.items():
            file = checkpoint / name
            there = file.stat().st_size if file.is_file() else 0
            if there < size:
                return f"{name} has {there} of {size} bytes"
        read_identity(checkpoint)
    except DamagedCheckpoint as error:
        return error.problem
    return None

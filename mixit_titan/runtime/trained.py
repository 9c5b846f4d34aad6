"""Loads the model of a training run from its folder into one process, however it was trained."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.data.loader import COUNTED_BY
from mixit_titan.data.tokenizers import (
    build_tokenizer,
    fingerprint,
    has_no_files,
    saved_tokenizer,
)
from mixit_titan.device import device_type
from mixit_titan.errors import ConfigError
from mixit_titan.json_form import COUNT, WrongForm, check_fields, check_form
from mixit_titan.log import logger
from mixit_titan.model.build import llama_config
from mixit_titan.model.identity import differences, identity, saved_stack
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.runtime.checkpoint_files import (
    hugging_face_steps,
    newest_complete,
    problem_of,
    steps,
)
from mixit_titan.runtime.checkpoint_identity import read_identity
from mixit_titan.runtime.optimizer import ADAM
from mixit_titan.runtime.tensor_reader import (
    OLDER,
    DamagedCheckpoint,
    check_sizes,
    has_checksums,
    load_tensors,
    tensor_sizes,
)

_SAID = {
    **{"mixer": str, "frozen": [str], "stack?": str},
    **{"debug.seed": COUNT, "model.mixing.seed?": int},
}


@dataclass(frozen=True)
class Trained:
    """A trained model with its tokenizer."""

    model: MixitLlama
    """In float32, without gradients; its config has stack, shape, recipe and seeds. It attends by
    SDPA, and its mixing matrices are stored where they fit."""
    tokenizer: BaseTokenizer
    tokenizer_name: str
    """`bytes`, `numbers:SIZE`, or the path of its files in the run's folder."""
    step: int


def load_trained(run_dir: Path | str, step: int | None = None) -> Trained:
    """Load the newest complete checkpoint of a run, or that of `step`, on the GPU if there is one.
    The checkpoint itself describes the model. Raises a ConfigError where that fails: a checkpoint
    that turns out to be damaged is not replaced by an older one that nobody asked for."""
    checkpoint, step = _find(Path(run_dir), step)
    saved = read_identity(str(checkpoint))
    if saved is None:
        raise ConfigError(f"{checkpoint} does not describe its model: another program wrote it")
    try:
        tokenizer_name, tokenizer = _tokenizer(Path(run_dir), saved)
        config = _config(saved, tensors=len(tensor_sizes(checkpoint)))
    except (KeyError, TypeError, AttributeError, WrongForm) as error:
        problem = f"the description of its model is incomplete ({error})"
        raise DamagedCheckpoint(checkpoint, problem) from error
    different = differences(saved, identity(config), ignore={"data.tokenizer", *COUNTED_BY, *ADAM})
    if different:
        raise ConfigError(
            f"{checkpoint} has a model that this version of mixit_titan cannot build: "
            f"{'; '.join(different)}"
        )
    check_sizes(checkpoint, _on_meta(config).state_dict())  # before it takes memory
    model = _empty(config)
    if not has_checksums(checkpoint):
        logger.info(OLDER.format(checkpoint))
    try:
        load_tensors(checkpoint, model.state_dict())
    except DamagedCheckpoint as damage:
        before = newest_complete(checkpoint.parent, before=step)
        advice = "" if before is None else f": load the one before it by --step {before}"
        raise DamagedCheckpoint(checkpoint, f"{damage.problem}{advice}") from damage
    return Trained(model, tokenizer, tokenizer_name, step)


def _find(run_dir: Path, step: int | None) -> tuple[Path, int]:
    folder = run_dir / "checkpoint"
    if not run_dir.is_dir():
        raise ConfigError(f"there is no folder {run_dir}: name the folder (dump_folder) of a run")
    if step is None:
        step = newest_complete(folder)
        exported = max(hugging_face_steps(folder), default=-1)
        if exported > (-1 if step is None else step):
            raise ConfigError(
                f"the last weights of {run_dir} are in Hugging Face's format, in "
                f"{folder}/step-{exported}: load them with transformers"
                + ("" if step is None else f", or use the older checkpoint by --step {step}")
            )
        if step is None:
            raise ConfigError(
                f"there is no complete checkpoint in {folder}: name the folder (dump_folder) of a "
                "run that mixit-titan train has written"
            )
    elif step not in steps(folder):
        there = ", ".join(map(str, sorted(steps(folder)))) or "none"
        raise ConfigError(f"{folder} has no checkpoint of step {step} (it has: {there})")
    problem = problem_of(folder / f"step-{step}")
    if problem is not None:
        raise ConfigError(f"{folder}/step-{step} is not complete: {problem}. Choose another --step")
    return folder / f"step-{step}", step


def _tokenizer(run_dir: Path, saved: dict[str, Any]) -> tuple[str, BaseTokenizer]:
    recorded = saved.get("data.tokenizer.name", "bytes")
    name = saved_tokenizer(run_dir) or (recorded if has_no_files(recorded) else "bytes")
    tokenizer = build_tokenizer(name)
    if fingerprint(tokenizer) != saved["data.tokenizer"]:
        raise ConfigError(
            f"{run_dir / 'tokenizer'} does not contain the tokenizer of the run: copy its files "
            "there, as training does when it starts"
        )
    return name, tokenizer


def _config(saved: dict[str, Any], *, tensors: int) -> MixitLlama.Config:
    def fields(cls: type, prefix: str) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(cls)]
        found = {name: saved[prefix + name] for name in names if prefix + name in saved}
        check_fields(found, cls)
        return found

    check_form(saved, _SAID)
    shape = Shape(**fields(Shape, "model."))
    if shape.layers > tensors:
        raise WrongForm(f"{shape.layers} layers and {tensors} tensors")
    return llama_config(
        shape,
        saved_stack(saved, shape.layers),
        Recipe(**fields(Recipe, "model.mixing.")),
        mixing_seed=saved.get("model.mixing.seed", 0),
        init_seed=saved["debug.seed"],
        attention="sdpa",
    )


def _on_meta(config: MixitLlama.Config) -> MixitLlama:
    with torch.device("meta"):
        return config.build()


def _empty(config: MixitLlama.Config) -> MixitLlama:
    """The model with all of its buffers and uninitialized weights that are to be loaded:
    `init_states` would draw them first, which takes longer."""
    model = _on_meta(config)
    model.to_empty(device=device_type())
    if config.enable_weight_tying:
        model.tok_embeddings.weight = model.lm_head.weight
    for module in model.modules():
        module._init_self_buffers()
    return model.requires_grad_(False).eval()

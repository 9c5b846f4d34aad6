"""`mixit-titan export`: from a run's folder to one that other programs load."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from safetensors import SafetensorError
from safetensors.torch import save_file

from mixit_titan.errors import ConfigError
from mixit_titan.export.mixit_folder import mixit_config, write_code
from mixit_titan.export.tokenizer_files import write_tokenizer
from mixit_titan.files import json_text, new_folder
from mixit_titan.model.hugging_face import HuggingFaceAdapter, hf_config
from mixit_titan.ranges import NOT_NEGATIVE
from mixit_titan.runtime.trained import Trained, load_trained


@dataclass
class ExportArguments:
    """Write a trained model as a Hugging Face folder, in float32. A variant that attends is a Llama
    to transformers; MixiT brings a small modelling file of its own.

    Example: mixit-titan export runs/debug_standard --out exported/standard
    """

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR")]
    """The folder of a training run (its dump_folder)."""
    out: Path
    """A folder that is not there yet, or empty."""
    step: Annotated[int | None, NOT_NEGATIVE] = None
    """Of the checkpoint (default: the newest)."""


def run_export(args: ExportArguments) -> None:
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise ConfigError(f"--out {args.out} is there and not empty: name a new folder")
    trained = load_trained(args.run_dir, args.step)
    stack = trained.model.config.stack
    if not stack.only("attention") and not stack.only("mixing"):
        raise ConfigError(
            f"{args.run_dir} is of the stack {stack.name!r}: only models of attention and models "
            "of mixing can be exported yet, `mixit-titan generate` reads any"
        )
    try:
        with new_folder(args.out) as folder:
            write_export(trained, folder)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--out {args.out} cannot be written ({why}): make room, or name another folder"
        ) from error
    print(f"wrote {args.out}: {stack.name} after step {trained.step}")


def write_export(trained: Trained, folder: Path) -> None:
    model = trained.model
    weights = HuggingFaceAdapter(model.config).to_hf(model.state_dict())
    weights = {name: tensor.contiguous() for name, tensor in weights.items()}
    mixes, end_of_text = model.config.stack.mixes, trained.tokenizer.eos_id
    config = (mixit_config if mixes else hf_config)(model.config, end_of_text)
    if mixes:
        write_code(folder)
    config["dtype"] = "float32"
    write_tokenizer(trained, folder)
    (folder / "config.json").write_text(json_text(config, indent=2) + "\n")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # safetensors makes a file for its owner alone.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")

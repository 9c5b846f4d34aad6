"""`mixit-titan export`: from a run's folder to one that other programs can load."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from safetensors import SafetensorError
from safetensors.torch import save_file

from mixit_titan.data.tokenizers import vocabulary
from mixit_titan.errors import ConfigError
from mixit_titan.export.mixit_folder import mixit_config, write_code
from mixit_titan.export.tokenizer_files import write_tokenizer
from mixit_titan.files import json_text, new_folder
from mixit_titan.jobs.lock import locked
from mixit_titan.model.hugging_face import HuggingFaceAdapter, hf_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.ranges import NOT_NEGATIVE
from mixit_titan.runtime.trained import Trained, load_trained


@dataclass
class ExportArguments:
    """Export a trained model as a Hugging Face folder, in float32. A variant that attends becomes a
    Llama, which transformers can load; MixiT and other stacks come with a small modeling file of
    their own.

    Example: mixit-titan export runs/debug_standard --out exported/standard
    """

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR")]
    """The folder of a training run (its dump_folder)."""
    out: Path
    """A folder that does not exist yet, or is empty."""
    step: Annotated[int | None, NOT_NEGATIVE] = None
    """The step of the checkpoint (default: the newest)."""


def run_export(args: ExportArguments) -> None:
    """Write the folder and print how to load it."""
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise ConfigError(f"--out {args.out} exists and is not empty: name a new folder")
    trained = load_trained(args.run_dir, args.step)
    try:
        with locked(args.out, beside=True), new_folder(args.out) as folder:
            write_export(trained, folder)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--out {args.out} cannot be written ({why}): make room, or name another folder"
        ) from error
    config = trained.model.config
    print(
        f"wrote {args.out}: {config.stack.name} after step {trained.step}\n"
        f'Load it with AutoModelForCausalLM.from_pretrained("{args.out}"'
        + (")" if _is_llama(config) else ", trust_remote_code=True)")
    )


def _is_llama(config: MixitLlama.Config) -> bool:
    """Whether transformers has this model itself."""
    return config.stack.only("attention")


def write_export(trained: Trained, folder: Path) -> None:
    """Write config, weights and tokenizer of a trained model."""
    model, end_of_text = trained.model.config, trained.tokenizer.eos_id
    weights = trained.model.state_dict()
    if _is_llama(model):
        config = hf_config(model, end_of_text)
        weights = HuggingFaceAdapter(model).to_hf(weights)
    else:
        config = mixit_config(model, end_of_text)
        write_code(folder)
        if model.shape.tied:
            del weights["lm_head.weight"]
    config["dtype"] = "float32"
    write_tokenizer(trained, folder)
    # Ids without a token are never generated, as in `mixit-titan generate`.
    no_tokens = list(range(vocabulary(trained.tokenizer), model.shape.vocab))
    generation = {"eos_token_id": end_of_text, "suppress_tokens": no_tokens or None}
    for name, content in (("config", config), ("generation_config", generation)):
        (folder / f"{name}.json").write_text(json_text(content, indent=2) + "\n")
    weights = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # safetensors creates a file that only its owner can read.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")

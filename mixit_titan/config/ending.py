"""What a finished training run ends with: its losses, its folder, and what to type next."""

import shlex
from pathlib import Path
from typing import Any

from torchtitan.trainer import Trainer

from mixit_titan.data.synthetic import SYNTHETIC
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import read_state


def print_ending(run: Trainer.Config) -> None:
    """Print how a run ended, if it has finished. Called by one process of the run."""
    folder = Path(run.dump_folder)
    state = read_state(folder)
    if state is not None and state.word == "finished":
        saved = run.checkpoint.enable and not run.checkpoint.last_save_in_hf
        text = not Path(run.dataloader.dataset_path).name.startswith(SYNTHETIC)
        print("\n".join(ending(folder, step=state.step, generates=saved and text)))


def ending(folder: Path, *, step: int, generates: bool) -> list[str]:
    """The lines. `generates`: the run has a checkpoint of a model of text."""
    lines = read_metrics(folder / "metrics.jsonl")
    found = [f"{name} {_last(lines, key):.4f}" for name, key in _LOSSES if _has(lines, key)]
    perplexity = ""
    if _has(lines, "perplexity"):
        perplexity = f" (perplexity {_last(lines, 'perplexity'):.2f})"
    said = f": {', '.join(found)}{perplexity}" if found else ""
    commands = []
    if generates:
        commands.append(["mixit-titan", "generate", str(folder), "--prompt", "The "])
    if _has(lines, "validation_loss"):
        commands.append(["mixit-titan", "compare", str(folder), "ANOTHER_RUN"])
    next_ = ["Next:", *(f"  {shlex.join(words)}" for words in commands)] if commands else []
    return [f"Finished after step {step:,}{said}", f"The run is in {folder}", *next_]


_LOSSES = (("training loss", "loss"), ("validation loss", "validation_loss"))


def _has(lines: list[dict[str, Any]], key: str) -> bool:
    return any(line.get(key) is not None for line in lines)


def _last(lines: list[dict[str, Any]], key: str) -> float:
    return [line[key] for line in lines if line.get(key) is not None][-1]

"""Folders of runs whose curves are known."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.stack import read_stack

TOKENS_PER_STEP = 1000


def write_run(
    folder: Path,
    variant: str,
    losses: dict[int, float],
    *,
    tokens_per_s: float = 500.0,
    seed: int = 0,
    tokenizer: str = "bytes",
    data: str = "/data/prepared",
    lr: float = 1e-3,
    bits: float = 1.4,
) -> Path:
    """A run that was validated at the steps of `losses`. Its first step took ten times as long."""
    folder.mkdir(parents=True)
    loader = {"dataset_path": data, "packing": "stream", "seed": seed}
    config: dict[str, Any] = {
        "model_spec": {
            "flavor": "debug",
            "model": {
                "shape": asdict(FLAVORS["debug"]),
                "stack": asdict(read_stack(variant, FLAVORS["debug"].layers)),
                "recipe": {"std": "width"},
                "init_seed": seed,
                "mixing_seed": seed,
            },
        },
        "hf_assets_path": tokenizer,
        "dataloader": loader,
        "training": {"seq_len": 128, "steps": max(losses), "global_batch_size": 8},
        "optimizer": {
            "param_groups": [{"optimizer_name": "AdamW", "optimizer_kwargs": {"lr": lr}}]
        },
        "lr_scheduler": {"warmup_steps": 10},
        "validator": {"rows": 32, "dataloader": loader},
    }
    (folder / "config.json").write_text(json.dumps(config))
    lines = []
    for step in range(max(losses) + 1):
        if step:
            rate = tokens_per_s / 10 if step == 1 else tokens_per_s
            seen = {"tokens": step * TOKENS_PER_STEP, "tokens_per_s": rate}
            lines.append({"step": step, "loss": 5.0, **seen, "seconds": 100.0 * step})
        if step in losses:
            loss = losses[step]
            lines.append({"step": step, "validation_loss": loss, "bits_per_byte": bits * loss})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "state").write_text(f"finished {max(losses)}\n")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    return lambda name, *args, **kwargs: write_run(tmp_path / name, *args, **kwargs)

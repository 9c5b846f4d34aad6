"""One rank of `mixit-titan bench` that also writes which steps it took, and how many bytes FSDP2's
collectives moved in each."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mixit_titan.bench.steps import TrainerSteps
from mixit_titan.cli import main

STEPS: list[dict[str, Any]] = []
MOVED = {"weights": 0, "gradients": 0}


def received(kind: str, collective: Callable) -> Callable:
    """Counts what a rank receives: all of the larger tensor but its own part."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
        whole = max(t.numel() * t.element_size() for t in tensors)
        MOVED[kind] += whole * (dist.get_world_size() - 1) // dist.get_world_size()
        return collective(*args, **kwargs)

    return counted


def logged(step: Callable) -> Callable:
    def wrapped(self: TrainerSteps, clock: Any, microbatches: int | None = None) -> None:
        MOVED.update(weights=0, gradients=0)
        step(self, clock, microbatches)
        variant = self.trainer.model_config.stack.name
        STEPS.append(
            {
                "variant": variant,
                "step": self.trainer.step,
                "microbatches": microbatches,
                **MOVED,
            }
        )

    return wrapped


def bench(ports: list[int], folder: Path, words: list[str]) -> None:
    """In a process of its own."""
    # torch 2.13 calls the first two of them; others may call the last two.
    for kind, name in (
        ("weights", "all_gather_single"),
        ("gradients", "reduce_scatter_single"),
        ("weights", "all_gather_into_tensor"),
        ("gradients", "reduce_scatter_tensor"),
    ):
        if hasattr(dist, name):
            setattr(dist, name, received(kind, getattr(dist, name)))
    TrainerSteps.step = logged(TrainerSteps.step)
    sys.argv = ["mixit-titan", "bench", *words]
    main()
    (folder / f"rank_{os.environ['RANK']}.json").write_text(json.dumps(STEPS))

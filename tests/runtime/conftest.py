"""Real runs through torchtitan's Trainer, shared by the tests of this folder."""

import argparse
import inspect
from pathlib import Path

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.metrics import read_metrics
from tests.forkserver import Forkserver
from tests.runtime.worker import train_all
from tests.shards import write_shards

STEPS = 20
SMALL = [
    *("--model.width", "32", "--model.layers", "2", "--model.hidden", "64"),
    *("--model.vocab", "320", "--model.seq_len", "32", "--training.global_batch_size", "8"),
    *("--training.steps", str(STEPS), "--metrics.log_freq", "1", "--validator.enable", "false"),
    *("--lr_scheduler.warmup_steps", "5"),
]


def _key(variant: str) -> str:
    return "--model.variant" if variant in VARIANTS else "--model.stack"


class Runs:
    """Finished runs by name: their folders, their losses by step and their settings.

    Documents are the lines of a file, so a row of 32 tokens holds several of them, or parts.
    """

    def __init__(self, root: Path, server: Forkserver) -> None:
        self.root, self.server = root, server
        self.data = root / "data"

    def write_data(self) -> None:
        lines = [list(line.encode()) for line in inspect.getsource(argparse).splitlines() if line]
        write_shards(self.data, per_shard=300, train=lines[100:], validation=lines[:100])

    def train(self, ranks: int, jobs: dict[str, tuple[str, list[str]]]) -> None:
        """Train `jobs` (run name -> variant or stack, overrides) on `ranks` ranks, one after the
        other."""
        described = [
            (
                str(shipped_configs()["debug_standard"]),
                [
                    *(_key(variant), variant, *SMALL, "--data.path", str(self.data)),
                    *("--dump_folder", str(self.root / name), *overrides),
                ],
            )
            for name, (variant, overrides) in jobs.items()
        ]
        self.server.run_ranks(ranks, len(jobs), train_all, described)

    def folder(self, name: str) -> Path:
        return self.root / name

    def losses(self, name: str) -> list[float]:
        lines = [line for line in read_metrics(self.root / name / "metrics.jsonl")]
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
        return [line["loss"] for line in lines]

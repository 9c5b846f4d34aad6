"""Real runs through torchtitan's Trainer, shared by the tests of this folder."""

import argparse
import inspect
import json
import subprocess
import sys
from pathlib import Path

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.runtime.metrics import read_metrics
from tests.shards import write_shards

STEPS = 20
SMALL = [
    *("--model.width", "32", "--model.layers", "2", "--model.hidden", "64"),
    *("--model.vocab", "320", "--model.seq_len", "32", "--training.global_batch_size", "8"),
    *("--training.steps", str(STEPS), "--metrics.log_freq", "1", "--validator.enable", "false"),
    *("--lr_scheduler.warmup_steps", "5"),
]


class Runs:
    """Name -> folder of a finished run, its losses by step and its settings.

    Documents are the lines of a file, so that a row of 32 tokens holds several of them, or parts.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        lines = [list(line.encode()) for line in inspect.getsource(argparse).splitlines() if line]
        self.data = write_shards(
            root / "data", per_shard=300, train=lines[100:], validation=lines[:100]
        )

    def train(self, ranks: int, jobs: dict[str, tuple[str, list[str]]]) -> None:
        """Train `jobs` (run name -> variant, overrides) on `ranks` ranks in one torchrun."""
        described = [
            (
                str(shipped_configs()[f"debug_{variant}"]),
                [
                    *(*SMALL, "--data.path", str(self.data)),
                    *("--dump_folder", str(self.root / name), *overrides),
                ],
            )
            for name, (variant, overrides) in jobs.items()
        ]
        file = self.root / f"jobs_{ranks}_{len(list(self.root.iterdir()))}.json"
        file.write_text(json.dumps(described))
        worker = Path(__file__).with_name("worker.py")
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
        done = subprocess.run(
            [sys.executable, *torchrun, str(worker), str(file)],
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]

    def folder(self, name: str) -> Path:
        return self.root / name

    def losses(self, name: str) -> list[float]:
        lines = [line for line in read_metrics(self.root / name / "metrics.jsonl")]
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
        return [line["loss"] for line in lines]

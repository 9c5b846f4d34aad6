"""Small valid inputs of every kind that a command reads, made once by the commands themselves."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.ladder.command import LadderArguments
from mixit_titan.ladder.grid import plan_runs
from mixit_titan.ladder.jobs import ladder_job
from tests.evaluation.local_tasks import write_tasks
from tests.forkserver import Forkserver, mixit_titan
from tests.fuzz.attempt import attempt

CONFIGS = Path(__file__).parents[2] / "train_configs"
SMALL = (
    *("--model.width", "16", "--model.heads", "2", "--model.layers", "1"),
    *("--model.hidden", "16", "--training.seq_len", "32", "--model.seq_len", "32"),
    *("--checkpoint.interval", "2", "--metrics.log_freq", "1", "--data.packing", "stream"),
)
"""Of the run."""
TASK = (
    *("modular", "--steps", "4", "--eval-every", "2", "--batch", "4", "--width", "16"),
    *("--layers", "1", "--test", "8"),
)
"""Name and options of the task."""
SUITE = (
    *("state", "--only", "parity", "--stacks", "standard", "--seeds", "1", "--grid", "lr=1e-3"),
    *("--set", "steps=2", "batch=4", "width=16", "test=8", "--device", "cpu"),
)
LADDER = ("--stacks", "standard")
_SECONDS = 600


@dataclass(frozen=True)
class Good:
    """Folders that the kinds copy or name. None of them may be changed."""

    root: Path

    @property
    def config(self) -> Path:
        """A TOML file of a run that takes seconds."""
        return CONFIGS / "debug_mixit.toml"

    @property
    def data(self) -> Path:
        """Token shards, as `prepare` writes them."""
        return self.root / "data"

    @property
    def text(self) -> Path:
        """A text file, from which `data` was prepared."""
        return self.root / "text.txt"

    @property
    def run(self) -> Path:
        """The folder of a training run on `data`, finished at step 4, with checkpoints."""
        return self.root / "run"

    @property
    def task(self) -> Path:
        """The folder of a finished run of the task `modular`."""
        return self.root / "task"

    @property
    def unfinished(self) -> Path:
        """The same, killed before its result was written: with its checkpoints."""
        return self.root / "unfinished"

    @property
    def twin(self) -> Path:
        """A copy of `run` that says it began with another seed: what `compare` takes beside it."""
        return self.root / "twin"

    @property
    def tasks(self) -> Path:
        """YAML files of lm-eval."""
        return self.root / "tasks"

    @property
    def suite(self) -> Path:
        """The folder of a suite of one run."""
        return self.root / "suite"

    @property
    def ladder(self) -> Path:
        """The folder of a ladder with a frozen forecast, whose runs are figures of a power law."""
        return self.root / "ladder"

    @property
    def words(self) -> Path:
        """Token shards as `data`, by a tokenizer that has files."""
        return self.root / "words"


def make_good(root: Path, server: Forkserver) -> Good:
    good = Good(root)
    root.mkdir(parents=True, exist_ok=True)
    good.text.write_text("\n\n".join(f"The square of {n} is {n * n}." for n in range(2000)))
    where = ["--training.steps", "4", "--data.path", str(good.data), "--dump_folder", str(good.run)]
    prepare = ["prepare", str(good.text), "--workers", "1"]
    commands = [
        [*prepare, "--tokenizer", "bytes", "--out", str(good.data)],
        [*prepare, "--train-tokenizer", "300", "--out", str(good.words)],
        ["train", str(good.config), *where, *SMALL],
        ["task", *TASK, "--out", str(good.task)],
        ["suite", *SUITE, "--out", str(good.suite)],
        ["ladder", *LADDER, "--forecast", "--out", str(good.ladder)],
    ]
    _write_results(good.ladder)
    write_tasks(good.tasks)
    for words in commands:
        outcome = attempt(server, words, root, seconds=_SECONDS)
        assert outcome.code == 0, outcome
    with server.start(_killed_task, good.unfinished) as process:
        assert process.wait(_SECONDS) == 0, process.output()
    shutil.copytree(good.run, good.twin)
    config = json.loads((good.run / "config.json").read_text())
    config["model_spec"]["model"]["init_seed"] += 1
    (good.twin / "config.json").write_text(json.dumps(config))
    return good


def _write_results(out: Path) -> None:
    """Of the runs of a ladder but the largest, as trainings would have left them."""
    args = LadderArguments(stacks=("standard",), out=out)
    scale = args.chosen()
    for run in plan_runs(scale, scale.vocab, seeds=1):
        if run.largest:
            continue
        folder = ladder_job(run, scale, scale.vocab, out).folder
        folder.mkdir(parents=True)
        loss = 1 + 40 / run.params**0.4 + 60 / run.tokens**0.35
        ended = {"step": run.steps, "validation_loss": loss, "bits_per_byte": 1.5 * loss}
        trained = {"step": run.steps, "loss": loss, "tokens": run.tokens, "tokens_per_s": 1.0}
        (folder / "metrics.jsonl").write_text(f"{json.dumps(trained)}\n{json.dumps(ended)}\n")


def _killed_task(folder: Path) -> None:
    from mixit_titan.tasks import loop

    loop.remove_checkpoints = lambda folder: None
    mixit_titan("task", *TASK, "--out", str(folder))
    for name in ("result.json", "model.safetensors"):
        (folder / name).unlink()

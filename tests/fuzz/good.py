"""Small good things of every sort that a command reads, made once by the commands themselves."""

from dataclasses import dataclass
from pathlib import Path

from tests.forkserver import Forkserver
from tests.fuzz.attempt import attempt

CONFIGS = Path(__file__).parents[2] / "train_configs"
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


def make_good(root: Path, server: Forkserver) -> Good:
    good = Good(root)
    root.mkdir(parents=True, exist_ok=True)
    good.text.write_text("\n\n".join(f"The square of {n} is {n * n}." for n in range(2000)))
    small = ["--model.width", "16", "--model.heads", "2", "--model.layers", "1"]
    small += ["--model.hidden", "16", "--training.seq_len", "32", "--model.seq_len", "32"]
    small += ["--training.steps", "4", "--checkpoint.interval", "2", "--metrics.log_freq", "1"]
    small += ["--data.path", str(good.data), "--data.packing", "stream"]
    tiny = ["--batch", "4", "--width", "16", "--layers", "1", "--test", "8"]
    commands = [
        ["prepare", str(good.text), "--tokenizer", "bytes", "--out", str(good.data)],
        ["train", str(good.config), "--dump_folder", str(good.run), *small],
        ["task", "modular", "--steps", "4", "--eval-every", "2", *tiny, "--out", str(good.task)],
    ]
    for words in commands:
        outcome = attempt(server, words, root, seconds=_SECONDS)
        assert outcome.code == 0, outcome
    return good

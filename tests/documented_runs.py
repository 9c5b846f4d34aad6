"""Runs the commands of a page one after another in one folder, as a reader would, at small sizes.

A command is run, or it is only read where it needs what a test machine has not: a GPU, a cluster, a
network, the files of another page. `EXACT=1` in the environment leaves the sizes as the page has
them."""

import os
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

from tests.documented import ROOT, check_command, commands
from tests.forkserver import Forkserver, mixit_titan

SHIPPED = ("train_configs", "slurm", "README.md", "LICENSE")
_FILE = re.compile(r"`(\w+\.(?:py|toml))`[^`\n]*:\n\n((?:    .*\n|\n)+)")
"""A sentence that ends in the name of a file and a colon, and the block below it."""
_ELSEWHERE = re.compile(
    r"prepare (fineweb|wikitext|s3:|gs:|hf:)|--tasks |--slurm|^mixit-titan drill |\bT\b"
    r"|^mixit-titan train (?!train_configs/debug|\w+\.toml)|initial_load_path"
    r"|bench --compare|--array-variants|runs/160m_fineweb"
)
"""The network, a cluster, GPUs, minutes, or a file of the reader's."""

Words = list[str]


def put(words: Words, **values: object) -> Words:
    """With these options, in place of the same ones. A name may have a dot in place of `__`."""
    for name, value in values.items():
        option = "--" + (name.replace("__", ".") if "__" in name else name.replace("_", "-"))
        if option in words:
            at = words.index(option) + 1
            end = next((n for n in range(at, len(words)) if words[n].startswith("--")), len(words))
            words = [*words[: at - 1], *words[end:]]
        words = [*words, option, *str(value).split()]
    return words


def _train(words: Words) -> Words:
    if "--checkpoint.interval" in words:
        words = put(words, checkpoint__interval=1)
    words = put(words, training__steps=2, training__seq_len=32, training__global_batch_size=2)
    return put(words, lr_scheduler__warmup_steps=1, validator__rows=2, validator__freq=1)


def _prepare(words: Words) -> Words:
    if "stdlib" in words:
        words = put(words, train_documents=4, validation_documents=1)
    if "--train-tokenizer" in words:
        words = put(words, train_tokenizer=300)
    return put(words, workers=1)


def _task(words: Words) -> Words:
    return words if "--show" in words else put(words, steps=2, test=20, batch=4)


def _sweep(words: Words) -> Words:
    grid = " ".join(words)
    fixed = [f"{k}={n}" for k, n in {"steps": 2, "test": 20, "batch": 4}.items() if k not in grid]
    at = words.index("--set") + 1 if "--set" in words else None
    words = [*words, "--set", *fixed] if at is None else [*words[:at], *fixed, *words[at:]]
    return put(words, seeds=2 if "--seeds" in words else 1)


def _bench(words: Words) -> Words:
    if any(word.startswith("train_configs/") for word in words):
        return words  # modeled where there is no GPU
    return put(words, width=16, layers=2, heads=2, vocab=64, seq_len=32, batch=1)


def _analyze(words: Words) -> Words:
    return put(words, sequences=2)


def _listed(words: Words) -> Words:
    return words if "--list" in words or "--report" in words else [*words, "--list"]


def _submit(words: Words) -> Words:
    return words if "--dry-run" in words else [*words, "--dry-run"]


SMALL: dict[str, Callable[[Words], Words]] = {
    "train": _train,
    "prepare": _prepare,
    "task": _task,
    "sweep": _sweep,
    "bench": _bench,
    "analyze": _analyze,
    "suite": _listed,
    "ladder": _listed,
    "submit": _submit,
    "generate": lambda words: put(words, tokens=2),
}


class Reader:
    """Somebody who types the commands of one page, in a folder that has what the project ships."""

    def __init__(self, folder: Path, forkserver: Forkserver) -> None:
        self.folder, self.forkserver = folder, forkserver
        self.run: list[str] = []
        self.only_read: list[str] = []
        for name in SHIPPED:  # copies, because a reader may write beside them
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)

    def read(self, page: Path) -> None:
        text = page.read_text()
        for name, code in _FILE.findall(text):
            (self.folder / name).write_text(textwrap.dedent(code))
        for command in commands(text):
            if self._can_run(command):
                self._run(command)
                self.run.append(command)
            else:
                check_command(command)
                self.only_read.append(command)

    def _can_run(self, command: str) -> bool:
        program, *_ = command.split()
        return program in ("mixit-titan", "cp", "mkdir", "make") and not _ELSEWHERE.search(command)

    def _run(self, command: str) -> None:
        words = shlex.split(command.partition(" > ")[0], comments=True)
        if words[0] != "mixit-titan":
            words = ["make", "-n", "-C", str(ROOT), *words[1:]] if words[0] == "make" else words
            subprocess.run(words, cwd=self.folder, check=True, capture_output=True)
            return
        words = [self._found(word) for word in words[1:]]
        if "EXACT" not in os.environ:
            words = SMALL.get(words[0], list)(words)
        elif words[0] == "submit":
            words = _submit(words)
        with self.forkserver.start(mixit_titan, *words) as process:
            code, output = process.wait(1800), process.output("replace")
        assert "Traceback" not in output, f"{command}\n{output}"
        if words[0] == "submit":  # no cluster is here, and nothing else is wrong
            problems = re.findall(r"^  - (.*)", output, re.MULTILINE)
            assert all("batch" in line or "Slurm" in line for line in problems), output
        elif words[0] != "status" or "there is no run in" not in output:  # nothing was submitted
            assert code == 0, f"{command}\n{output}"

    def _found(self, word: str) -> str:
        """The folder that HASH stands in the name of."""
        if not word.endswith("_HASH"):
            return word
        return str(next(self.folder.glob(word.replace("HASH", "*"))).relative_to(self.folder))

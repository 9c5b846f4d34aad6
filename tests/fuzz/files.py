"""Malformed files: a copy of something valid, with one file damaged, and a command that reads
it."""

import base64
import gzip
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.case import Case
from tests.fuzz.damage import damage, seal_metadata, seal_shards
from tests.fuzz.good import LADDER, SMALL, SUITE, TASK, Good

TRAINS = 60.0  # seconds, of a command that may find nothing wrong and does its work


@dataclass(frozen=True)
class Target:
    """A folder of the case to be made, the files in it that are damaged, and who reads them."""

    make: Callable[[Good, Path], object]
    files: tuple[str, ...]
    commands: Callable[[Good], list[Case]]


def files_case(draw: random.Random, place: Path, good: Good) -> Case:
    target = draw.choice(_TARGETS)
    target.make(good, place)
    named = [file for name in target.files for file in sorted(place.glob(name))]
    file = draw.choice(named)
    _ = damage(file, draw)
    if draw.random() < 0.5:
        _seal(file)
    return draw.choice(target.commands(good))


def _seal(file: Path) -> None:
    """Make the checksums right of what is wrong."""
    if not file.is_file() or file.stat().st_size > 2**20:
        return
    if file.name == ".metadata":
        seal_metadata(file.parent)
    elif file.suffix in (".tokens", ".ends"):
        seal_shards(file.parent)


def _copy(name: str) -> Callable[[Good, Path], object]:
    def make(good: Good, place: Path) -> None:
        shutil.copytree(getattr(good, name), place / name, symlinks=True)

    return make


def _readers_of_a_run(good: Good) -> list[Case]:
    again = ["train", str(good.config), "--dump_folder", "run", *SMALL]
    again += ["--data.path", str(good.data)]
    return [
        Case(["status", "run"], codes=(0, 2)),
        Case(["generate", "run", "--prompt", "a", "--tokens", "2"]),
        Case(["export", "run", "--out", "out"]),
        Case(["analyze", "spectrum", "run"], seconds=TRAINS, may_leave=("run",)),
        Case(
            ["analyze", "timeline", "run", "--sequences", "2"], seconds=TRAINS, may_leave=("run",)
        ),
        Case(["eval", "run", "--text", str(good.text), "--out", "out"], seconds=TRAINS),
        Case(["eval", "run", "--tasks", str(good.tasks), "--out", "out"], seconds=TRAINS),
        Case(["compare", "run", str(good.twin), "--out", "out"], seconds=TRAINS),
        Case([*again, "--training.steps", "4"], may_leave=("run",)),
        Case([*again, "--training.steps", "5"], seconds=TRAINS, may_leave=("run",)),
    ]


def _readers_of_shards(good: Good) -> list[Case]:
    train = ["train", str(good.config), "--dump_folder", "run", *SMALL, "--data.path", "data"]
    prepare = ["prepare", str(good.text), "--tokenizer", "bytes", "--out", "data"]
    left = (".verified*", ".prepare*")
    return [
        Case([*train, "--training.steps", "1"], seconds=TRAINS, may_leave=("run", *left)),
        Case(prepare, may_leave=left),
        Case([*prepare, "--verify", "--workers", "1"], may_leave=(*left, "*.tokens", "*.ends")),
        Case(["params", str(good.config), "--data.path", "data"]),
    ]


def _readers_of_a_task(folder: str) -> Callable[[Good], list[Case]]:
    own = {"seconds": TRAINS, "may_leave": (folder,)}
    return lambda good: [
        Case(["task", *TASK, "--out", folder], **own),
        Case(["status", folder], codes=(0, 2)),
        Case(["analyze", "attention", folder], **own),
    ]


def _sweep(good: Good, place: Path) -> None:
    """A sweep of the one point that `task` is."""
    from mixit_titan.tasks.options import parse, preset_run
    from mixit_titan.tasks.settings import Run
    from mixit_titan.tasks.task import task_class

    name, *words = TASK
    run = parse(Run[task_class(name)], preset_run(name, "cpu", words), name, words)
    shutil.copytree(good.task, place / "sweep" / run.hash)
    (place / "sweep" / run.hash / "seconds").write_text("3.125\n")
    (place / "sweep" / run.hash / "log.txt").write_text("as before\n")


def _readers_of_a_sweep(good: Good) -> list[Case]:
    name, *words = TASK
    pairs = zip(words[::2], words[1::2], strict=True)
    grid = [f"{key.strip('-')}={value}" for key, value in pairs if key != "--variant"]
    sweep = ["sweep", name, "--variants", "standard", "--set", *grid, "--out", "sweep"]
    return [Case(sweep, seconds=TRAINS, may_leave=("sweep",))]


def _readers_of_a_suite(good: Good) -> list[Case]:
    suite = ["suite", *SUITE, "--out", "suite"]
    return [Case(suite, seconds=TRAINS, may_leave=("suite",)), Case([*suite, "--list"])]


def _readers_of_a_ladder(good: Good) -> list[Case]:
    ladder = ["ladder", *LADDER, "--out", "ladder"]
    own = {"seconds": TRAINS, "may_leave": ("ladder",)}
    return [Case([*ladder, word], **own) for word in ("--report", "--list", "--forecast")]


def _texts(good: Good, place: Path) -> None:
    (place / "texts").mkdir()
    (place / "texts" / "a.txt").write_text("naïve text\n\n" * 50)
    lines = "".join(json.dumps({"id": n, "text": f"line {n}"}) + "\n" for n in range(50))
    (place / "texts" / "b.jsonl").write_text(lines)
    (place / "texts" / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    rows = "".join(f"{n % 2},review {n} is {'good' if n % 2 else 'bad'}\n" for n in range(80))
    (place / "reviews.csv").write_text("label,text\n" + rows)
    (place / "prompts.txt").write_text("a\nb\n")
    ranks = "".join(f"{base64.b64encode(bytes([n])).decode()} {n}\n" for n in range(256))
    (place / "ranks.tiktoken").write_text(ranks)
    shutil.copyfile(good.config, place / "run.toml")
    for name in ("before", "after"):
        (place / f"{name}.json").write_text(json.dumps(BENCH))


BENCH = {
    "measured": True,
    "settings": {
        "shape": {"width": 8, "layers": 1, "heads": 2, "hidden": 8, "vocab": 9, "seq_len": 4},
        **{"batch": 2, "dtype": "float32", "compile": False, "ac": "none", "ranks": 1},
        "frozen": "sharded",
    },
    "variants": [
        {"variant": "standard", "ratio": 1.0, "tokens_per_s": 10.0},
        {"variant": "mixit", "ratio": 1.5, "tokens_per_s": 15.0},
    ],
}


def _prepare(*words: str) -> Case:
    return Case(["prepare", *words, "--out", "out"], seconds=TRAINS, may_leave=("out",))


def _readers_of_texts(good: Good) -> list[Case]:
    return [_prepare("texts", "--tokenizer", "bytes", "--workers", "1")]


def _readers_of_ranks(good: Good) -> list[Case]:
    return [_prepare(str(good.text), "--tokenizer", "ranks.tiktoken", "--workers", "1")]


def _tokenizer(good: Good, place: Path) -> None:
    _texts(good, place)
    shutil.copytree(good.words / "tokenizer", place / "tokenizer")


def _readers_of_a_tokenizer(good: Good) -> list[Case]:
    return [_prepare(str(good.text), "--tokenizer", "tokenizer", "--workers", "1")]


def _one(*words: str) -> Callable[[Good], list[Case]]:
    return lambda good: [Case([word.replace("RUN", str(good.run)) for word in words])]


_RUN = (
    *("run/metrics.jsonl", "run/state", "run/config.json", "run/heartbeat/rank_0"),
    *("run/checkpoint/step-4/*", "run/checkpoint/step-4/.metadata", "run/logs/rank_0.log"),
)
_TARGETS = [
    *[Target(_copy("run"), _RUN, _readers_of_a_run)] * 6,
    *[Target(_copy("data"), ("data/*", "data/.verified.json"), _readers_of_shards)] * 4,
    *[Target(_copy("task"), ("task/*",), _readers_of_a_task("task"))] * 3,
    *[Target(_copy("unfinished"), ("unfinished/*",), _readers_of_a_task("unfinished"))] * 2,
    Target(_sweep, ("sweep/*/*",), _readers_of_a_sweep),
    Target(_copy("suite"), ("suite/*.json", "suite/*/*"), _readers_of_a_suite),
    Target(_copy("ladder"), ("ladder/*.json", "ladder/runs/*/*"), _readers_of_a_ladder),
    *[Target(_texts, ("texts/*",), _readers_of_texts)] * 2,
    Target(_texts, ("ranks.tiktoken",), _readers_of_ranks),
    Target(_tokenizer, ("tokenizer/*",), _readers_of_a_tokenizer),
    Target(_texts, ("run.toml",), _one("params", "run.toml")),
    Target(_texts, ("run.toml",), _one("submit", "run.toml", "--dry-run")),
    Target(_texts, ("reviews.csv",), _one("task", "yelp", "--csv", "reviews.csv", "--show", "2")),
    Target(_texts, ("prompts.txt",), _one("generate", "RUN", "--prompts", "prompts.txt")),
    *[Target(_texts, ("before.json",), _one("bench", "--compare", "before.json", "after.json"))]
    * 2,
]

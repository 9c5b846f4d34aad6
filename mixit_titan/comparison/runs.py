"""Training runs as `compare` reads them: what was trained, and how far it has come.

Everything is read from the folders that `mixit-titan train` writes, even while a run is training.
"""

import glob
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mixit_titan.comparison.curve import Curve, Loss, read_curve
from mixit_titan.errors import ConfigError
from mixit_titan.json_form import COUNT, WrongForm, check_fields
from mixit_titan.model.accounting import count
from mixit_titan.model.pairs import Pair
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack, uniform
from mixit_titan.reading import json_if_good, read_json
from mixit_titan.runtime.goodput import Goodput, goodput
from mixit_titan.runtime.ledger import read_times
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import RunState, read_state

_PAIR = {"mixer": str, "frozen": [str]}
_STACK = {"pairs": [_PAIR], "outer": [str]}
_LOADER = {
    **{"dataset_path": str, "packing": str, "seed": COUNT},
    "sources?": [{"path": str, "name": str}],
    "weights?": [{"first": COUNT, "of_sources": [float]}],
}
_CONFIG = {
    "model_spec": {
        "flavor": str,
        "model": {
            **{"shape": dict, "recipe": dict, "init_seed": COUNT, "mixing_seed": int},
            "stack?": _STACK,
            "variant?": _PAIR,  # of runs from before stacks existed
        },
    },
    "hf_assets_path": str,
    "dataloader": _LOADER,
    "training": {"seq_len": COUNT, "steps": COUNT, "global_batch_size": int},
    "optimizer": {
        "param_groups": [{"optimizer_name": str, "optimizer_kwargs": dict}],
        "phases?": [{"after": COUNT, "stack": _STACK}],
        "groups?": [str],
    },
    "lr_scheduler": dict,
    "checkpoint?": dict,
    "validator": {"rows": int, "dataloader": _LOADER},
}
_SPLIT = {"tokens": COUNT, "bytes": COUNT}
_MANIFEST = {"splits": {"train": _SPLIT, "validation?": {**_SPLIT, "documents": COUNT}}}


_RUN = ("config.json", "metrics.jsonl", "result.json")
"""The files that mark the folder of a run; a task has the latter two."""


class CannotCompare(Exception):
    """Why a folder is left out of a comparison, in words that follow its name."""


@dataclass(frozen=True)
class TrainingRun:
    """One run, with everything that a comparison needs to know about it."""

    folder: Path
    variant: str
    settings: dict[str, Any]
    """All settings that affect training, except the seeds. Runs that share them form one group."""
    seeds: tuple[int, ...]
    """The seeds of the weights, of the mixing matrices and of the order of the data."""
    text: tuple[Any, ...]
    """What identifies the validation text, independently of the tokenizer."""
    tokenizer: str
    bytes_per_token: float | None
    """Bytes per token of the training text; None if its shards are gone."""
    lines: Sequence[dict[str, Any]]
    flops_per_token: float
    phases: Sequence[tuple[int, float]]
    """Pairs of a step and the FLOPs per token from there on, if the trained parts change."""
    starts: Sequence[int]
    """The steps after which it was started: 0, and wherever it resumed."""
    trained_params: int
    state: str
    failure: str
    """At which step it failed and why; empty for a run that did not fail."""
    goodput: Goodput | None = None
    """None for a task, and for a run without times.jsonl."""
    accuracy: float | None = None
    """The final test accuracy, for a run of a task."""

    def curve(self, loss: Loss) -> Curve:
        """The curve of one kind of loss."""
        phases = self.phases or [(0, self.flops_per_token)]
        return read_curve(self.lines, loss, phases, self.starts)


def find_folders(names: Iterable[str]) -> list[Path]:
    """The folders of the runs that are named directly, by a glob, or by a folder around them."""
    found: dict[Path, None] = {}
    for name in names:
        matched = [Path(each) for each in sorted(glob.glob(name))] or [Path(name)]
        for folder in matched:
            inside = {path.parent for kind in _RUN for path in folder.glob(f"**/{kind}")}
            found |= dict.fromkeys(_outermost(inside) or [folder])
    return list(found)


def _outermost(folders: set[Path]) -> list[Path]:
    """The folders that are inside no other: an exported model inside a run is not a run."""
    return sorted(folder for folder in folders if folders.isdisjoint(folder.parents))


def read_run(folder: Path) -> TrainingRun:
    """Read the training run in a folder; CannotCompare if there is none, or no validation yet."""
    if not folder.is_dir():
        raise CannotCompare("is not a directory")
    if not (folder / "config.json").exists():
        raise CannotCompare(
            "has neither config.json nor result.json: it is not a training run or a finished task"
        )
    try:
        config = read_json(folder / "config.json", _CONFIG)
        lines = read_metrics(folder / "metrics.jsonl")
        model = config["model_spec"]["model"]
        check_fields(model["shape"], Shape)
        shape, stack = Shape(**model["shape"]), _stack(model)
        seq_len = config["training"]["seq_len"]
        counts = count(shape, stack, seq_len=seq_len)
        phases = [
            (phase["after"], count(shape, _pairs(phase["stack"]), seq_len=seq_len).flops_per_token)
            for phase in config["optimizer"].get("phases", [])
        ]
    except (ConfigError, WrongForm, TypeError, KeyError) as error:
        raise CannotCompare(f"cannot be read: {error}") from None
    state = read_state(folder)
    _check_lines(lines, state)
    train, validation = config["dataloader"], config["validator"]
    failed = state is not None and state.word in ("failed", "hung")
    return TrainingRun(
        folder=folder,
        variant=stack.name,
        settings=_settings(config, shape, stack),
        seeds=(model["init_seed"], model["mixing_seed"], train["seed"]),
        text=_text(validation, seq_len),
        tokenizer=config["hf_assets_path"],
        bytes_per_token=_bytes_per_token(train),
        lines=lines,
        flops_per_token=counts.flops_per_token,
        phases=phases,
        starts=[0, *(line["first"] for line in read_times(folder) if line["first"] is not None)],
        trained_params=counts.trainable,
        state=state.word if state else "unknown",
        failure=f"at step {state.step}: {state.said}" if failed else "",
        goodput=goodput(folder),
    )


def _check_lines(lines: Sequence[dict[str, Any]], state: RunState | None) -> None:
    if not lines:
        raise CannotCompare("has no metrics.jsonl yet, or an empty one")
    if not any(line.get("loss") is not None for line in lines):
        raise CannotCompare("has no finite loss in its metrics.jsonl yet")
    if not any(line.get("validation_loss") is not None for line in lines):
        raise CannotCompare("has not been validated yet (validator.freq)")
    since = _diverged_at(lines, state)
    if since is not None:
        raise CannotCompare(f"has diverged: its loss is not finite from step {since:,} on")
    for line in lines:
        rate, tokens = line.get("tokens_per_s"), line.get("tokens")
        if line.get("loss") is not None and not (rate and rate > 0 and isinstance(tokens, int)):
            raise CannotCompare(f"has no tokens or tokens/s at step {line['step']}")


def _diverged_at(lines: Sequence[dict[str, Any]], state: RunState | None) -> int | None:
    """The step from which no loss or gradient is finite. A run ends there, usually before it logs
    that step."""
    for key in ("loss", "validation_loss"):
        since = None
        for line in lines:
            if key in line:
                finite = line[key] is not None and math.isfinite(line[key])
                since = None if finite else line["step"] if since is None else since
        if since is not None:
            return since
    failed = state is not None and state.word == "failed" and "is not finite" in state.said
    return state.step if failed else None


def _stack(model: dict[str, Any]) -> Stack:
    return _pairs(model["stack"]) if "stack" in model else uniform(**model["variant"])


def _pairs(stack: dict[str, Any]) -> Stack:
    pairs = [Pair(mixer=p["mixer"], frozen=tuple(p["frozen"])) for p in stack["pairs"]]
    return Stack(tuple(pairs), tuple(stack["outer"]))


def _settings(config: dict[str, Any], shape: Shape, stack: Stack) -> dict[str, Any]:
    """The settings as a flat table, under their names in a run's TOML file where they have one."""
    model = config["model_spec"]["model"]
    optimizer = config["optimizer"]
    # The last of each kind: the others come from optimizer.groups.
    groups = {g["optimizer_name"]: g for g in optimizer["param_groups"]}.values()
    found = {f"model.{key}": value for key, value in asdict(shape).items()}
    if stack.mixes:
        found |= {f"model.mixing.{key}": value for key, value in model["recipe"].items()}
    found |= {f"training.{key}": config["training"][key] for key in config["training"]}
    for group in groups:
        prefix = "optimizer" if len(groups) == 1 else f"optimizer.{group['optimizer_name']}"
        found[f"{prefix}.name"] = group["optimizer_name"]
        found |= {f"{prefix}.{key}": value for key, value in group["optimizer_kwargs"].items()}
    found["optimizer.groups"] = "; ".join(optimizer.get("groups", []))
    found |= {f"lr_scheduler.{key}": value for key, value in config["lr_scheduler"].items()}
    found |= {f"data.{key}": config["dataloader"][key] for key in ("dataset_path", "packing")}
    found["data.sources"] = _sources(config["dataloader"])
    start = config.get("checkpoint", {}).get("initial_load_path")
    found |= {"checkpoint.initial_load_path": start, "model.float8": model.get("float8")}
    return found | {"model.variant": stack.name}


def _text(validator: dict[str, Any], seq_len: int) -> tuple[Any, ...]:
    """Equal for two tokenizations of one validation set: it is known by its bytes and documents."""
    found = [
        (split["bytes"], split["documents"]) if split else path
        for path, split in _splits(validator["dataloader"], "validation").items()
    ]
    which = found[0] if len(found) == 1 else tuple(found)
    return which, validator["rows"], seq_len, validator["dataloader"]["packing"]


def _splits(loader: dict[str, Any], name: str) -> dict[str, dict[str, int] | None]:
    """The entry of a split in the manifest of each source; None if its shards are gone."""
    paths = [source["path"] for source in loader.get("sources", [])] or [loader["dataset_path"]]
    manifests = {path: json_if_good(Path(path) / "manifest.json", _MANIFEST) for path in paths}
    return {path: found and found["splits"].get(name) for path, found in manifests.items()}


def _sources(loader: dict[str, Any]) -> str:
    """The weights of a mixture: `web 0.7, code 0.3; from row 64,000: web 0.5, code 0.5`."""
    names = [source["name"] for source in loader.get("sources", [])]
    spells = []
    for weights in loader.get("weights", []):
        pairs = zip(names, weights["of_sources"], strict=False)
        said = ", ".join(f"{name} {weight:g}" for name, weight in pairs)
        spells.append(f"from row {weights['first']:,}: {said}" if weights["first"] else said)
    return "; ".join(spells)


def _bytes_per_token(loader: dict[str, Any]) -> float | None:
    """The bytes per token of the training text; for a mixture, at its first weights."""
    splits = list(_splits(loader, "train").values())
    weights = [each["of_sources"] for each in loader.get("weights", [])][:1] or [[1]]
    if len(weights[0]) != len(splits) or sum(weights[0]) <= 0:
        return None
    if not all(split and split["tokens"] for split in splits):
        return None
    sizes = [split["bytes"] / split["tokens"] for split in splits]
    return sum(w * size for w, size in zip(weights[0], sizes, strict=True)) / sum(weights[0])

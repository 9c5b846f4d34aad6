"""The run that is measured: that of a config file, or one made from options, with random tokens in
place of its data and without anything that is not training."""

import copy
import dataclasses
import itertools
from pathlib import Path
from typing import Any, get_args

from torchtitan.distributed import ParallelDims
from torchtitan.models.common.attention import FlexAttention, VarlenAttention
from torchtitan.trainer import Trainer

from mixit_titan.bench.arguments import BenchArguments
from mixit_titan.bench.settings import Point
from mixit_titan.config.plan import Plan, Table, plan_table
from mixit_titan.config.run import with_data
from mixit_titan.config.small import small_model
from mixit_titan.config.toml import apply_overrides, read_run
from mixit_titan.data.synthetic import SYNTHETIC
from mixit_titan.device import check_device, has_gpu
from mixit_titan.errors import ConfigError, shown, unknown
from mixit_titan.model.freezing import FrozenStorage
from mixit_titan.model.hardware import Gpu
from mixit_titan.model.parallelize import Recomputation
from mixit_titan.model.stack import says_mixing
from mixit_titan.model.storage import DTYPE_BYTES

_SWITCH = ("on", "off")
AXES: dict[str, tuple[str, ...] | None] = {
    "seq_len": None,
    "width": None,
    "batch": None,
    "compile": _SWITCH,
    "ac": get_args(Recomputation),
    "dtype": tuple(DTYPE_BYTES),
    "graphs": _SWITCH,
    "documents": _SWITCH,
    "chunks": None,
}
"""What can be scanned, with the allowed words; None: numbers."""

_WITHOUT_A_CONFIG = {
    "model": {"flavor": "debug"},
    "data": {"packing": "documents"},
    "training": {"local_batch_size": 4},
}
_NEVER = 2**31 - 1

_LONGEST = 20  # digits, more than any size has


def split_axes(args: BenchArguments) -> list[BenchArguments]:
    """Return the arguments of each point, with a single value for each axis."""
    values = [_values(axis, getattr(args, axis)) for axis in AXES]
    return [
        dataclasses.replace(args, **dict(zip(AXES, point, strict=True)))
        for point in itertools.product(*values)
    ]


def _values(axis: str, text: str | None) -> list[str | None]:
    if text is None:
        return [None]
    words, allowed, option = text.split(","), AXES[axis], f"--{axis.replace('_', '-')}"
    for word in words:
        if allowed is not None and word not in allowed:
            raise unknown(option, word, allowed)
        if allowed is None and not (word.isdecimal() and len(word) < _LONGEST):
            raise ConfigError(
                f"{option} is {shown(text)}: it must be a number, or several separated by commas"
            )
        if word == "0":
            raise ConfigError(f"{option} is 0: it must be at least 1")
    if axis == "graphs" and "on" in words and not has_gpu():
        raise ConfigError("--graphs on needs an NVIDIA GPU, which this machine lacks: leave it out")
    return list(dict.fromkeys(words))


def run_table(args: BenchArguments) -> Table:
    """Return the run of one point as a config file would describe it, but without its variant."""
    if args.config is None:
        table = copy.deepcopy(_WITHOUT_A_CONFIG)
        apply_overrides(table, list(args.overrides))
    else:
        table = read_run(args.config, list(args.overrides))
    for section, keys in _options(args).items():
        given = {key: value for key, value in keys.items() if value is not None}
        table[section] = _section(table, section) | given
    if args.device is not None:
        table["device"] = args.device
    data = _section(table, "data")
    if not any(word.startswith(("--data.path", "--data.sources")) for word in args.overrides):
        kept = {k: v for k, v in data.items() if k not in ("tokenizer", "sources")}
        table["data"] = kept | {"path": SYNTHETIC}
    # Turned off because it is not training.
    table |= {"checkpoint": {"enable": False}, "validator": {"enable": False}}
    table |= {"metrics": {"log_freq": _NEVER}, "profiler": {}}
    for key in ("dump_folder", "eval"):
        table.pop(key, None)
    # Which weights are trained must be the same at every step.
    table["optimizer"] = {k: v for k, v in _section(table, "optimizer").items() if k != "groups"}
    return table


def _section(table: Table, name: str) -> Table:
    section = table.get(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name} is {section!r}: it must be a section of keys")
    return section


def _options(args: BenchArguments) -> dict[str, dict[str, Any]]:
    """Return section -> key -> the value given by an option, or None if it was not given."""

    def number(text: str | None) -> int | None:
        return None if text is None else int(text)

    def switch(word: str | None, on: Any = True, off: Any = False) -> Any:
        return None if word is None else on if word == "on" else off

    if args.frozen is not None and args.frozen not in get_args(FrozenStorage):
        raise unknown("--frozen", args.frozen, get_args(FrozenStorage))
    width, seq_len, batch = number(args.width), number(args.seq_len), number(args.batch)
    hidden = args.hidden if args.hidden or width is None else 4 * width
    shape = {"width": width, "hidden": hidden, "seq_len": seq_len, "flavor": args.flavor}
    return {
        "model": shape | {key: getattr(args, key) for key in ("layers", "heads", "vocab")},
        "training": {
            "seq_len": seq_len,
            "local_batch_size": batch,
            "global_batch_size": None if batch is None else -1,
            "mixed_precision_param": args.dtype,
            "disable_cuda_graphs": switch(args.graphs, on=False, off=True),
        },
        "data": {"packing": switch(args.documents, on="stream", off="documents")},
        "loss": {"num_chunks": number(args.chunks)},
        "compile": {"enable": switch(args.compile)},
        "activation_checkpoint": {"mode": args.ac},
        "fsdp": {"frozen": args.frozen},
    }


def read_point(args: BenchArguments, ranks: int) -> Point:
    """Return the point for arguments with a single value for each axis."""
    run = run_table(args)
    if run.get("device") == "gpu" and not has_gpu():
        check_device()
        raise ConfigError(
            f"{args.config} is for GPUs and this machine has none: a small model with its settings "
            f"can be measured on the CPU by {small_model(run)}"
        )
    return plan_point(run, ranks, args.config or "the command line")


def plan_point(run: Table, ranks: int, where: str, gpu: Gpu | None = None) -> Point:
    """Plan a point without running it; `gpu` is what each rank has, whatever this machine has."""
    standard, mixit = (plan_variant(run, name, ranks, where, gpu) for name in ("standard", "mixit"))
    sections = standard.sections
    dims = ParallelDims.from_config(sections.parallelism, ranks)
    training, data_parallel = sections.training, dims.dp_replicate * dims.dp_shard
    local = training.local_batch_size
    batch = local if training.global_batch_size == -1 else training.global_batch_size
    if training.global_batch_size != -1:
        batch //= data_parallel
    return Point(
        run=run,
        ranks=ranks,
        data_parallel=data_parallel,
        shape=standard.model.shape,
        seq_len=training.seq_len,
        batch=batch,
        microbatches=batch // local,
        dtype=training.mixed_precision_param,
        compile=sections.compile.enable,
        ac=sections.activation_checkpoint.mode,
        frozen=sections.fsdp.frozen,
        graphs=not training.disable_cuda_graphs,
        documents=sections.data.packing == "stream",
        chunks=sections.loss.num_chunks,
        attention=_attention(standard),
        form=mixit.model.first_mixing.form,
    )


def _attention(plan: Plan) -> str:
    inner = plan.model.first_attention.inner_attention
    kinds = {"flex": FlexAttention.Config, "varlen": VarlenAttention.Config}
    return next((name for name, kind in kinds.items() if isinstance(inner, kind)), "sdpa")


def plan_variant(run: Table, variant: str, ranks: int, where: str, gpu: Gpu | None = None) -> Plan:
    """Return the run with this variant in place of its own; `gpu` is as in `plan_point`."""
    own = ("stack", "variant", "mixer", "freeze")
    model = {key: value for key, value in run["model"].items() if key not in own}
    model["stack"] = variant
    if not says_mixing(variant):
        model.pop("mixing", None)
    on_gpus = None if gpu is None else True
    settings = {"name": "bench", "where": where, "on_gpus": on_gpus, "gpu": gpu}
    return plan_table(run | {"model": model}, world_size=ranks, **settings)


def load_variant(point: Point, variant: str, folder: Path) -> Trainer.Config:
    """Return a function that builds a new trainer of the variant at each call; the trainer writes
    to `folder`."""
    run = point.run | {"dump_folder": str(folder)}
    return with_data(plan_variant(run, variant, point.ranks, "the run"))

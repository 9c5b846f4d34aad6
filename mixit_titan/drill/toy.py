"""A toy version of a run: the same variant, parallelism, precision and checkpointing, with a model
of a few thousand weights on random tokens."""

import dataclasses
from pathlib import Path
from typing import Any

from mixit_titan.config.plan import Plan
from mixit_titan.data.synthetic import SYNTHETIC
from mixit_titan.files import json_text, write_text

Table = dict[str, Any]

INTERVAL = 10
"""Steps between two checkpoints."""
VOCAB, HEAD, LENGTH = 512, 16, 64
_KEPT = ("device", "optimizer", "compile", "fsdp", "quantize", "activation_checkpoint", "comm")
_KEPT += ("watch",)
_SPLIT_BY_HAND = (
    "module_fqns_per_model_part",
    "pipeline_parallel_layers_per_stage",
    "pipeline_parallel_schedule_csv",
)


def toy_table(table: Table, plan: Plan, *, steps: int, batch: int) -> Table:
    """The tables of the toy's TOML file. `table` is the user's file and `plan` is made from it;
    `batch` is the number of rows of all ranks."""
    parallelism = {
        key: value
        for key, value in table.get("parallelism", {}).items()
        if key not in _SPLIT_BY_HAND
    }
    toy = {key: table[key] for key in _KEPT if key in table}
    toy["optimizer"] = _without(
        table.get("optimizer", {}), "groups"
    )  # meant for other layers and steps
    toy["model"] = _model(table.get("model", {}), plan)
    toy["data"] = _only(table.get("data", {}), "packing", "seed", "workers") | {"path": SYNTHETIC}
    toy["training"] = _without(
        table.get("training", {}), "local_batch_size", "seq_len", "gc_debug"
    ) | {"steps": steps, "global_batch_size": batch}
    toy["lr_scheduler"] = _only(table.get("lr_scheduler", {}), "decay_type") | {"warmup_steps": 5}
    if LENGTH % plan.sections.loss.num_chunks == 0:
        toy["loss"] = table.get("loss", {})
    toy["parallelism"] = parallelism | {"pipeline_parallel_microbatch_size": 1}
    saving = {"interval": INTERVAL, "keep_latest_k": 3}
    toy["checkpoint"] = _only(table.get("checkpoint", {}), "async_mode") | saving
    toy["validator"] = {"enable": False}
    toy["metrics"] = {"log_freq": 1}
    toy["debug"] = _only(table.get("debug", {}), "seed", "deterministic", "deterministic_warn_only")
    return {key: value for key, value in toy.items() if value != {}}


def _model(table: Table, plan: Plan) -> Table:
    """A model whose heads tensor parallelism can divide, with layers for all stages of a pipeline
    and a sequence for context parallelism."""
    parallelism, shape = plan.sections.parallelism, plan.model.shape
    tensor, stages = parallelism.tensor_parallel_degree, parallelism.pipeline_parallel_degree
    heads = 4 * tensor
    layers = 4 * stages if stages > 1 else 2
    if len(plan.model.stack.pairs) > 1:  # layers differ, and the stack fits only this number
        layers = shape.layers
    sizes = dataclasses.asdict(shape) | {
        "width": HEAD * heads,
        "layers": layers,
        "heads": heads,
        "kv_heads": None if shape.kv_heads is None else heads // 2,
        "hidden": 2 * HEAD * heads,
        "vocab": VOCAB,
        "seq_len": LENGTH * tensor * parallelism.context_parallel_degree,
    }
    named = _only(table, "stack", "variant", "mixer", "freeze", "attention", "mixing")
    return named | {key: value for key, value in sizes.items() if value is not None}


def _only(table: Table, *keys: str) -> Table:
    return {key: table[key] for key in keys if key in table}


def _without(table: Table, *keys: str) -> Table:
    return {key: value for key, value in table.items() if key not in keys}


def write_toml(path: Path, table: Table) -> None:
    """Write tables as a TOML file."""
    write_text(path, "\n".join(_lines(table, "")) + "\n")


def _lines(table: Table, name: str) -> list[str]:
    """The values first, then the tables within the table."""
    own = [f"{key} = {_value(v)}" for key, v in table.items() if not isinstance(v, dict)]
    lines = [f"[{name}]", *own] if name else own
    for key, inner in table.items():
        if isinstance(inner, dict):
            lines += ["", *_lines(inner, f"{name}.{key}" if name else key)]
    return lines


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)  # inf and nan as TOML writes them
    return json_text(value, ensure_ascii=False)

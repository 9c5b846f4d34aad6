"""A TOML file plus command-line overrides -> a torchtitan Trainer.Config.

[model], [model.mixing] and [data] are this project's. [optimizer], [activation_checkpoint] and
[loss] are short forms of torchtitan's. All other sections have torchtitan's own names and keys.
"""

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torchtitan.components.loss import BaseLoss, ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import (
    LRSchedulersContainer,
    OptimizersContainer,
    default_adamw,
)
from torchtitan.config.configs import (
    CommConfig,
    CompileConfig,
    DebugConfig,
    ParallelismConfig,
    TrainingConfig,
)
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.tools.profiler import Profiler
from torchtitan.trainer import Trainer

from mixit_titan import run_checks
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.section import DataSection, prepared_data
from mixit_titan.data.tokenizers import tokenizer_config
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.build import model_spec
from mixit_titan.model.frozen_storage import FsdpSection
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recomputation import Recomputation, recomputation
from mixit_titan.model.section import model_from_section
from mixit_titan.runtime.checkpoint import IdentifiedCheckpointer
from mixit_titan.runtime.device import has_gpu
from mixit_titan.runtime.metrics import Metrics
from mixit_titan.runtime.trainer import MixitTrainer
from mixit_titan.runtime.validation import HeldOutValidator
from mixit_titan.sections import apply_overrides, fill, read_toml

_SECTIONS = [
    *("model", "data", "training", "optimizer", "lr_scheduler", "loss", "activation_checkpoint"),
    *(
        "compile",
        "parallelism",
        "fsdp",
        "checkpoint",
        "validator",
        "metrics",
        "profiler",
        "comm",
        "debug",
    ),
]


@dataclass(kw_only=True)
class TopLevel:
    """The keys above the first section."""

    dump_folder: str | None = None
    """The run's folder: config, metrics, checkpoints, logs. Default: runs/FILE_VARIANT."""
    device: Literal["auto", "gpu"] = "auto"
    """`gpu`: refuse to run on a machine without one."""


@dataclass(kw_only=True)
class OptimizerSection:
    name: Literal["AdamW", "Adam"] = "AdamW"
    lr: float = 5e-4
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    eps: float = 1e-8
    weight_decay: float = 0.1
    implementation: Literal["for-loop", "foreach", "fused", "fused_opt_states_bf16"] = "fused"

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ConfigError(f"optimizer.lr is {self.lr}: it must be above 0")
        if len(self.betas) != 2:
            raise ConfigError(f"optimizer.betas is {self.betas}: it must be two numbers")


@dataclass(kw_only=True)
class ActivationCheckpointSection:
    mode: Recomputation = "none"


@dataclass(kw_only=True)
class LossSection:
    num_chunks: int = 1
    """More than 1: the head and the loss work through the sequence in so many chunks, so that the
    logits are never whole in memory."""


def load_run(
    path: str, overrides: list[str], *, world_size: int, on_gpus: bool | None = None
) -> Trainer.Config:
    """Read, merge and check a run. Every mistake is a ConfigError, before any process group.
    `on_gpus`: what the ranks will have, where they do not run on this machine."""
    table = read_toml(path)
    apply_overrides(table, overrides)
    where = f"{path} (and the command line)" if overrides else path
    run = _build(table, path, where, has_gpu() if on_gpus is None else on_gpus)
    run_checks.check(run, world_size=world_size, given=table.get("training", {}))
    return run


def _build(table: dict[str, Any], path: str, where: str, on_gpus: bool) -> Trainer.Config:
    top_level = [f.name for f in dataclasses.fields(TopLevel)]
    for key in table:
        if key not in (*_SECTIONS, *top_level):
            raise unknown("key", key, [*_SECTIONS, *top_level], where=where)
        if key in _SECTIONS and not isinstance(table[key], dict):
            raise ConfigError(f"{key} in {where} is {table[key]!r}: it must be a section of keys")

    def section(cls: type, name: str, **options: Any) -> Any:
        values = _defaults(table, on_gpus).get(name, {}) | table.get(name, {})
        return fill(cls, values, section=name, where=where, **options)

    top = {key: value for key, value in table.items() if key in top_level}
    run = fill(TopLevel, top, section="the top level", where=where)
    if run.device == "gpu" and not on_gpus:
        raise ConfigError(
            f'{where} is for GPUs (device = "gpu") and there is none here: '
            "take one of train_configs/debug_*.toml, or set --device auto"
        )
    data = section(DataSection, "data")
    flavor, model = model_from_section(table.get("model", {}), where, data.packing)
    training = section(TrainingConfig, "training")
    if "seq_len" not in table.get("training", {}):
        training.seq_len = model.shape.seq_len
    folder, tokenizer = prepared_data(data)
    loader = RowLoader.Config(
        dataset_path=folder,
        packing=data.packing,
        seed=data.seed,
        workers=data.workers,
        positions=data.packing == "stream" or _needs_positions(model),
    )
    hidden = ["dataloader", "last_step", "steps"]
    validator = section(HeldOutValidator.Config, "validator", hidden=hidden)
    # The same rows for any seed, and no processes to be started for each validation.
    validator.dataloader = dataclasses.replace(loader, split="validation", seed=0, workers=0)
    metrics = section(Metrics.Config, "metrics", hidden=["last_step"])
    validator.last_step = metrics.last_step = training.steps
    debug = section(DebugConfig, "debug")
    model.init_seed = debug.seed
    model.frozen_storage = section(FsdpSection, "fsdp").frozen
    settings = {
        "model_spec": model_spec(flavor, model),
        "dump_folder": run.dump_folder or _dump_folder(path, model),
        "hf_assets_path": tokenizer,
        "tokenizer": tokenizer_config(tokenizer),
        "dataloader": loader,
        "validator": validator,
        "training": training,
        "optimizer": _optimizer(section(OptimizerSection, "optimizer")),
        "loss": _loss(section(LossSection, "loss"), model),
        "activation_checkpoint": recomputation(
            section(ActivationCheckpointSection, "activation_checkpoint").mode
        ),
        # A seed checkpoint skips freezing; a Hugging Face one needs an adapter.
        "checkpoint": section(
            IdentifiedCheckpointer.Config,
            "checkpoint",
            hidden=["create_seed_checkpoint", "last_save_in_hf", "initial_load_in_hf"],
        ),
        "lr_scheduler": section(LRSchedulersContainer.Config, "lr_scheduler"),
        "parallelism": section(ParallelismConfig, "parallelism"),
        "compile": section(CompileConfig, "compile"),
        "comm": section(CommConfig, "comm"),
        "metrics": metrics,
        "profiler": section(Profiler.Config, "profiler"),
        "debug": debug,
    }
    try:
        return MixitTrainer.Config(**settings)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _defaults(table: dict[str, Any], on_gpus: bool) -> dict[str, dict[str, Any]]:
    """Where ours differ from torchtitan's, and why."""
    varlen = table.get("model", {}).get("attention") == "varlen"
    defaults: dict[str, dict[str, Any]] = {
        # "spmd_types", torchtitan's default, wants a sharding config on every module.
        "parallelism": {"spmd_backend": "partial_dtensor"},
        # After the first step torchtitan allows 100 s for a collective; a validation, a save or a
        # recompilation may take longer.
        "comm": {"train_timeout_seconds": 1800},
        # Colours are for eyes, not for files.
        "metrics": {"disable_color_printing": not sys.stdout.isatty()},
        # Runs are reproducible unless a seed says otherwise.
        "debug": {"seed": 0, "save_config_file": "config.json", "enable_structured_logging": False},
        # Varlen attention asks the host for the longest document, which a graph cannot.
        "training": {"disable_cuda_graphs": True} if varlen else {},
    }
    if str(table.get("parallelism", {}).get("pipeline_parallel_degree", 1)) != "1":
        defaults["training"] = {"disable_cuda_graphs": True}  # torchtitan cannot capture stages
    if table.get("checkpoint", {}).get("initial_load_path"):
        defaults["checkpoint"] = {"initial_load_model_only": True}
    if not on_gpus:
        defaults["training"] = {"mixed_precision_param": "float32", "disable_cuda_graphs": True}
        # Gloo keeps the first timeout, and has no flight recorder.
        defaults["comm"] = {"init_timeout_seconds": 1800, "trace_buf_size": 0}
    return defaults


def _dump_folder(path: str, model: MixitLlama.Config) -> str:
    """runs/FILE_VARIANT, so that the variants of one file do not meet; debug_mixit says it once."""
    stem, variant = Path(path).stem, model.variant.name
    return f"runs/{stem}" if stem.endswith(variant) else f"runs/{stem}_{variant}"


def _needs_positions(model: MixitLlama.Config) -> bool:
    """Flex and varlen attention build their masks from positions."""
    inner = model.layers[0].attention.inner_attention
    plain = isinstance(inner, ScaledDotProductAttention.Config)
    return model.variant.mixer == "attention" and not plain


def _optimizer(section: OptimizerSection) -> OptimizersContainer.Config:
    config = default_adamw(
        lr=section.lr,
        betas=tuple(section.betas),
        eps=section.eps,
        weight_decay=section.weight_decay,
    )
    config.param_groups[0].optimizer_name = section.name
    config.implementation = section.implementation
    return config


def _loss(section: LossSection, model: MixitLlama.Config) -> BaseLoss.Config:
    loss = CrossEntropyLoss.Config(global_vocab_size=model.shape.vocab)
    if section.num_chunks == 1:
        return loss
    return ChunkedLossWrapper.Config(num_chunks=section.num_chunks, loss_fn=loss)

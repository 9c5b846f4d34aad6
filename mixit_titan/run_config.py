"""A TOML file plus command-line overrides -> a torchtitan Trainer.Config.

[model], [model.mixing] and [data] are this project's. [optimizer], [activation_checkpoint] and
[loss] are short forms of torchtitan's. All other sections have torchtitan's own names and keys.
"""

import dataclasses
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

from torchtitan.components.loss import BaseLoss, ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import (
    LRSchedulersContainer,
    OptimizersContainer,
    default_adamw,
)
from torchtitan.components.validate import Validator
from torchtitan.config.configs import (
    CommConfig,
    CompileConfig,
    DebugConfig,
    ParallelismConfig,
    TrainingConfig,
)
from torchtitan.distributed import ParallelDims
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.tools.profiler import Profiler
from torchtitan.trainer import Trainer

from mixit_titan.data.corpus import corpus_root
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.tokenizers import tokenizer_config
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.build import AttentionBackend, attention_backend, llama_config, model_spec
from mixit_titan.model.llama import MixitLlama, too_long
from mixit_titan.model.recipes import Recipe, find_recipe
from mixit_titan.model.shapes import Shape, find_flavor
from mixit_titan.model.variants import Variant, find_variant
from mixit_titan.runtime.checkpoint import IdentifiedCheckpointer
from mixit_titan.runtime.device import has_gpu
from mixit_titan.runtime.metrics import Metrics
from mixit_titan.sections import apply_overrides, fill, read_toml

DEFAULT_RECIPE = "paper"


@dataclass(kw_only=True)
class RunSection:
    """The keys above the first section."""

    dump_folder: str = "runs/last"
    """The run's folder: config, metrics, checkpoints and logs."""
    device: Literal["auto", "gpu"] = "auto"
    """`gpu`: refuse to run on a machine without one."""


@dataclass(kw_only=True)
class DataSection:
    path: str = "stdlib"
    tokenizer: str = "bytes"
    seed: int = 0


@dataclass(kw_only=True)
class OptimizerSection:
    name: Literal["AdamW", "Adam"] = "AdamW"
    lr: float = 5e-4
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    eps: float = 1e-8
    weight_decay: float = 0.1
    implementation: Literal["for-loop", "foreach", "fused", "fused_opt_states_bf16"] = "fused"


@dataclass(kw_only=True)
class ActivationCheckpointSection:
    mode: Literal["none", "selective", "full"] = "none"


@dataclass(kw_only=True)
class LossSection:
    num_chunks: int = 1
    """More than 1: the head and the loss work through the sequence in so many chunks, so that the
    logits are never whole in memory."""


@dataclass(kw_only=True)
class ModelSection:
    """What is not part of the shape. Each field of Shape is a key of [model] too, and changes the
    flavour's value."""

    variant: str | None = None
    mixer: str | None = None
    freeze: list[str] | None = None
    flavor: str = "debug"
    attention: AttentionBackend = "auto"


@dataclass(kw_only=True)
class MixingSection:
    """Each field of Recipe is a key of [model.mixing] too, and changes the recipe's value."""

    recipe: str = DEFAULT_RECIPE
    seed: int = 0


_SECTIONS = [
    *("model", "data", "training", "optimizer", "lr_scheduler", "loss", "activation_checkpoint"),
    *("compile", "parallelism", "checkpoint", "validator", "metrics", "profiler", "comm", "debug"),
]


def load_run(path: str, overrides: list[str], *, world_size: int) -> Trainer.Config:
    """Read, merge and check a run. Every mistake is a ConfigError, before any process group."""
    table = read_toml(path)
    apply_overrides(table, overrides)
    return build_run(table, where=path, world_size=world_size)


def build_run(table: dict[str, Any], *, where: str, world_size: int = 1) -> Trainer.Config:
    for key in table:
        if key not in (*_SECTIONS, *_names(RunSection)):
            raise unknown("key", key, [*_SECTIONS, *_names(RunSection)], where=where)
        if key in _SECTIONS and not isinstance(table[key], dict):
            raise ConfigError(f"{key} in {where} is {table[key]!r}: it must be a section of keys")

    def section(cls: type, name: str, **options: Any) -> Any:
        values = _defaults(table).get(name, {}) | table.get(name, {})
        return fill(cls, values, section=name, where=where, **options)

    top = {key: value for key, value in table.items() if key not in _SECTIONS}
    run = fill(RunSection, top, section="the top level", where=where)
    if run.device == "gpu" and not has_gpu():
        raise ConfigError(
            f'{where} is for GPUs (device = "gpu") and this machine has none: '
            "take one of train_configs/debug_*.toml, or set --device auto"
        )
    training = section(TrainingConfig, "training")
    flavor, model = _model(table.get("model", {}), table.get("training", {}), where)
    training.seq_len = table.get("training", {}).get("seq_len", model.shape.seq_len)
    if training.seq_len > model.max_seq_len:
        raise too_long(training.seq_len, model.max_seq_len)
    parallelism = section(ParallelismConfig, "parallelism")
    _set_batch(training, parallelism, table.get("training", {}), world_size)
    _check_mixing_parallelism(model, parallelism)

    data = section(DataSection, "data")
    corpus_root(data.path)
    tokenizer = tokenizer_config(data.tokenizer)
    _check_vocabulary(tokenizer.build(tokenizer_path=data.tokenizer), data, model.shape)
    loader = RowLoader.Config(
        dataset_path=data.path, seed=data.seed, positions=_needs_positions(model)
    )
    validator = section(Validator.Config, "validator", hidden=["dataloader"])
    validator.dataloader = dataclasses.replace(loader, split="validation")
    try:
        return Trainer.Config(
            model_spec=model_spec(flavor, model),
            dump_folder=run.dump_folder,
            hf_assets_path=data.tokenizer,
            tokenizer=tokenizer,
            dataloader=loader,
            validator=validator,
            training=training,
            parallelism=parallelism,
            optimizer=_optimizer(section(OptimizerSection, "optimizer")),
            lr_scheduler=section(LRSchedulersContainer.Config, "lr_scheduler"),
            checkpoint=section(IdentifiedCheckpointer.Config, "checkpoint"),
            activation_checkpoint=_activation_checkpoint(
                section(ActivationCheckpointSection, "activation_checkpoint")
            ),
            compile=section(CompileConfig, "compile"),
            comm=section(CommConfig, "comm"),
            metrics=section(Metrics.Config, "metrics"),
            profiler=section(Profiler.Config, "profiler"),
            debug=section(DebugConfig, "debug"),
            loss=_loss(section(LossSection, "loss"), training, model.shape, where),
        )
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _defaults(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Where ours differ from torchtitan's, and why."""
    cpu = not has_gpu()
    return {
        "training": {
            "mixed_precision_param": "float32" if cpu else "bfloat16",
            "disable_cuda_graphs": cpu,
        },
        # "spmd_types", torchtitan's default, wants a sharding config on every module.
        "parallelism": {"spmd_backend": "partial_dtensor"},
        # After the first step torchtitan allows 100 s for a collective; a validation, a save or a
        # recompilation may take longer.
        "comm": {"train_timeout_seconds": 1800, "init_timeout_seconds": 1800 if cpu else 300}
        | ({"trace_buf_size": 0} if cpu else {}),
        # Colours are for eyes, not for files.
        "metrics": {"disable_color_printing": not sys.stdout.isatty()},
        # torchtitan's default; it warns about it where there is no such path.
        "checkpoint": {
            "initial_load_model_only": bool(table.get("checkpoint", {}).get("initial_load_path"))
        },
        # Weights and runs are reproducible unless a seed says otherwise.
        "debug": {"seed": 0, "save_config_file": "config.json", "enable_structured_logging": False},
    }


def _model(
    table: dict[str, Any], training: dict[str, Any], where: str
) -> tuple[str, MixitLlama.Config]:
    shape_keys = _names(Shape)
    section = fill(
        ModelSection, table, section="model", where=where, others=[*shape_keys, "mixing"]
    )
    variant = find_variant(section.variant, section.mixer, section.freeze)
    base = dataclasses.asdict(find_flavor(section.flavor))
    if "seq_len" in training:
        base["seq_len"] = training["seq_len"]
    base |= {key: value for key, value in table.items() if key in shape_keys}
    shape = fill(Shape, base, section="model", where=where)
    recipe, seed = _mixing(table.get("mixing"), variant, where)
    config = llama_config(shape, variant, recipe, mixing_seed=seed, attention=section.attention)
    return section.flavor, config


def _mixing(table: dict[str, Any] | None, variant: Variant, where: str) -> tuple[Recipe, int]:
    if variant.mixer != "mixing":
        if table is not None:
            raise ConfigError(
                f"[model.mixing] in {where} is only for the mixing mixer, and the variant is "
                f'{variant.name!r}: remove the section, or set model.variant = "mixit"'
            )
        return Recipe(), 0
    table = table or {}
    knobs = _names(Recipe)
    section = fill(MixingSection, table, section="model.mixing", where=where, others=knobs)
    base = find_recipe(section.recipe).as_dict()
    base |= {key: value for key, value in table.items() if key in knobs}
    return fill(Recipe, base, section="model.mixing", where=where), section.seed


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


def _set_batch(
    training: TrainingConfig,
    parallelism: ParallelismConfig,
    given: dict[str, Any],
    world_size: int,
) -> None:
    """A global batch alone is divided among the ranks; both sizes together must fit them."""
    try:
        dims = ParallelDims.from_config(parallelism, world_size)
    except (AssertionError, ValueError) as error:
        raise ConfigError(
            f"[parallelism] does not fit {world_size} rank(s): {error}".rstrip(": ")
        ) from error
    ranks = dims.dp_replicate * dims.dp_shard
    batch = training.global_batch_size
    if batch > 0 and "local_batch_size" not in given:
        if batch % ranks:
            raise ConfigError(
                f"training.global_batch_size = {batch} cannot be divided among {ranks} "
                "data-parallel ranks: choose a multiple, or fewer ranks"
            )
        training.local_batch_size = batch // ranks
    if batch > 0 and batch % (training.local_batch_size * ranks):
        raise ConfigError(
            f"training.global_batch_size = {batch} is no multiple of training.local_batch_size = "
            f"{training.local_batch_size} times {ranks} data-parallel ranks"
        )


def _check_mixing_parallelism(model: MixitLlama.Config, parallelism: ParallelismConfig) -> None:
    if model.variant.mixer != "mixing":
        return
    for key in ("tensor", "pipeline", "context"):
        if getattr(parallelism, f"{key}_parallel_degree") > 1:
            raise ConfigError(
                f"parallelism.{key}_parallel_degree is not there yet for the mixing mixer: "
                "use data parallelism (data_parallel_shard_degree, data_parallel_replicate_degree)"
            )
    if parallelism.spmd_backend != "partial_dtensor":
        raise ConfigError(
            f"parallelism.spmd_backend = {parallelism.spmd_backend!r} is not there yet for the "
            "mixing mixer: use 'partial_dtensor'"
        )


def _check_vocabulary(tokenizer: Any, data: DataSection, shape: Shape) -> None:
    if tokenizer.get_vocab_size() > shape.vocab:
        raise ConfigError(
            f"data.tokenizer = {data.tokenizer!r} has {tokenizer.get_vocab_size()} entries, more "
            f"than model.vocab = {shape.vocab}: raise model.vocab or take another tokenizer"
        )
    if tokenizer.eos_id is None:
        raise ConfigError(f"data.tokenizer = {data.tokenizer!r} has no end-of-text token")


def _needs_positions(model: MixitLlama.Config) -> bool:
    inner = model.layers[0].attention.inner_attention
    return model.variant.mixer == "attention" and type(inner) is not type(attention_backend("sdpa"))


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


def _activation_checkpoint(
    section: ActivationCheckpointSection,
) -> SelectiveAC.Config | FullAC.Config | None:
    return {"none": None, "selective": SelectiveAC.Config(), "full": FullAC.Config()}[section.mode]


def _loss(
    section: LossSection, training: TrainingConfig, shape: Shape, where: str
) -> BaseLoss.Config:
    loss = CrossEntropyLoss.Config(global_vocab_size=shape.vocab)
    if section.num_chunks <= 1:
        return loss
    if training.seq_len % section.num_chunks:
        raise ConfigError(
            f"loss.num_chunks = {section.num_chunks} in {where} does not divide "
            f"training.seq_len = {training.seq_len}"
        )
    return ChunkedLossWrapper.Config(num_chunks=section.num_chunks, loss_fn=loss)

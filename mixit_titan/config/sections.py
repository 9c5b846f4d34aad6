"""The schema of a run's TOML file: `Sections` has one field for each section.

[model], [model.mixing], [data], [fsdp], [quantize], [eval] and [watch] are this project's.
[optimizer], [activation_checkpoint] and [loss] are short forms of torchtitan's. All other sections
have torchtitan's own names and keys.
"""

import re
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

from torchtitan.components.optimizer import LRSchedulersContainer
from torchtitan.config.configs import (
    CommConfig,
    CompileConfig,
    DebugConfig,
    ParallelismConfig,
)
from torchtitan.tools.profiler import Profiler

from mixit_titan.data.packing import Packing
from mixit_titan.data.sources import STDLIB
from mixit_titan.errors import ConfigError, shown
from mixit_titan.evaluation.in_training import EvalConfig
from mixit_titan.model.freezing import FrozenStorage
from mixit_titan.model.llama import Float8Recipe
from mixit_titan.model.mixers.positional import AttentionBackend
from mixit_titan.model.parallelize import Recomputation
from mixit_titan.model.storage import Storage
from mixit_titan.runtime.bad_steps import Training
from mixit_titan.runtime.checkpoint import IdentifiedCheckpointer
from mixit_titan.runtime.metrics import Metrics
from mixit_titan.runtime.validation import HeldOutValidator
from mixit_titan.runtime.watch import WatchConfig


@dataclass(kw_only=True)
class TopLevel:
    """The keys above the first section."""

    dump_folder: str | None = None
    """The run's folder: config, metrics, checkpoints, logs. Default: runs/FILE_VARIANT."""
    device: Literal["auto", "gpu", "cpu"] = "auto"
    """`auto`: the GPUs of the machine if it has any. `gpu`: refuse to run on a machine without one.
    `cpu`: the CPU, even on a machine with GPUs."""


@dataclass(kw_only=True)
class ModelSection:
    """[model]. Each field of Shape (model/shapes.py) is also a key and changes the flavor's value;
    [model.mixing] is a section of its own."""

    stack: str | None = None
    """The layers, where they differ from each other: `mixit*3 standard` (model/stack.py)."""
    variant: str | None = None
    """One of the five variants for all layers: `standard`, `frozen_qk`, `frozen_mlp`, `mixit`,
    `random`."""
    mixer: str | None = None
    """The module that mixes tokens in all layers, in place of a variant (model/mixers)."""
    freeze: list[str] | None = None
    """Parts that stay at initialization; beside a stack, parts of the complete model."""
    flavor: str = "debug"
    """The size of the model, by its name (model/shapes.py)."""
    attention: AttentionBackend = "auto"
    """The attention kernel. `auto`: flex on a GPU, else sdpa."""


@dataclass(kw_only=True)
class MixingSection:
    """[model.mixing], for the mixing mixer only. Each field of Recipe (model/recipes.py) is also a
    key and changes the recipe's value."""

    recipe: str = "paper"
    """`paper`: equation 2.3 of the paper. `official`: what the authors' code does."""
    seed: int = 0
    """Seed of the mixing matrices."""
    storage: Storage = "auto"
    """How the mixing matrices are kept: stored on each rank, sharded over the ranks, or generated
    in each step."""


@dataclass(kw_only=True)
class SourceSection:
    """[[data.sources]]: one source of a mixture. Another table with the same path and with `after`
    changes its weight during training."""

    path: str = ""
    """Like data.path."""
    weight: float | None = None
    """The share of the source's tokens is its weight divided by the sum over all sources."""
    after: int = 0
    """The step after which this weight applies."""
    name: str | None = None
    """The source's name in the log and the metrics. Default: the name of its file or folder."""

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("data.sources.path is missing: name the data of each source")
        if self.weight is None:
            raise ConfigError(f"data.sources: path = {shown(self.path)} has no weight: give it one")
        if self.weight == 0 and self.after == 0:
            raise ConfigError(
                f"data.sources: path = {shown(self.path)} has weight = 0, so it would never be "
                "read: leave it out"
            )
        if self.name is not None and not re.fullmatch(r"[\w.-]+", self.name):
            raise ConfigError(
                f"data.sources.name is {shown(self.name)}: it must consist of letters, digits, "
                "'.', '_' and '-'"
            )


@dataclass(kw_only=True)
class DataSection:
    """[data]: what a run trains on, and how documents become rows."""

    path: str | None = None
    """A folder that `mixit-titan prepare` wrote; or a text file, a folder of them or `stdlib`,
    which are tokenized once and cached; or `synthetic`: random tokens of the model's vocabulary in
    documents as long as web documents, for benchmarks and rehearsals. Default: `stdlib`."""
    sources: list[SourceSection] = field(default_factory=list)
    """Several sources with weights, in place of `path`."""
    tokenizer: str | None = None
    """Default: the tokenizer of a prepared folder; `bytes` for text."""
    packing: Packing = "stream"
    """`stream`: all documents one after another. `documents`: one document per row."""
    seed: int = 0
    """Seed of the order of the rows."""
    workers: int = 0
    """Processes per rank that read ahead."""

    def __post_init__(self) -> None:
        if self.sources and self.path is not None:
            raise ConfigError(
                f"data.path = {shown(self.path)} and data.sources are both given: leave one out"
            )

    @property
    def paths(self) -> list[str]:
        """The paths of all sources, each once, in the order of the file."""
        if not self.sources:
            return [STDLIB if self.path is None else self.path]
        return list(dict.fromkeys(source.path for source in self.sources))


@dataclass(kw_only=True)
class GroupSection:
    """[[optimizer.groups]]: weights with a learning rate, weight decay or schedule of freezing of
    their own."""

    parts: str = ""
    """The parts of the model in this group: `qk@upper mlp` (model/phases.py)."""
    lr_factor: float = 1.0
    """Multiplies optimizer.lr."""
    weight_decay: float | None = None
    """Default: optimizer.weight_decay."""
    freeze_until: int | None = None
    """The parts stay at initialization up to and including this step."""
    freeze_after: int | None = None
    """The parts stay as they are after this step."""

    def __post_init__(self) -> None:
        if not self.parts.strip():
            raise ConfigError("optimizer.groups.parts is missing: name some, as in 'qk@upper mlp'")
        others = (self.weight_decay, self.freeze_until, self.freeze_after)
        if self.lr_factor == 1 and others == (None, None, None):
            raise ConfigError(
                f"optimizer.groups: parts = {shown(self.parts)} changes nothing: give it "
                "lr_factor, weight_decay, freeze_until or freeze_after"
            )
        until, after = self.freeze_until or 0, self.freeze_after
        if after is not None and until >= after:
            raise ConfigError(
                f"optimizer.groups: parts = {shown(self.parts)} would never be trained, because "
                f"freeze_until = {until} is not before freeze_after = {after}: name it in "
                "model.freeze, or change one of them"
            )


@dataclass(kw_only=True)
class OptimizerSection:
    """[optimizer]: the algorithm and its settings."""

    name: Literal["AdamW", "Adam", "Muon"] = "AdamW"
    """`Muon` trains the matrices of the layers; AdamW, with the other keys, trains the rest."""
    lr: float = 5e-4
    """The peak learning rate of the schedule."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    """Decay rates of the two moments of Adam and AdamW."""
    eps: float = 1e-8
    """The constant that Adam and AdamW add to the denominator."""
    weight_decay: float = 0.1
    """Decoupled weight decay of all trained weights."""
    implementation: Literal["for-loop", "foreach", "fused", "fused_opt_states_bf16"] = "fused"
    """The implementation of Adam and AdamW; `fused_opt_states_bf16` keeps the optimizer state in
    bfloat16."""
    groups: list[GroupSection] = field(default_factory=list)
    """Weights with a learning rate, a weight decay or a freezing schedule of their own."""

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ConfigError(f"optimizer.betas is {self.betas}: it must be two numbers")


@dataclass(kw_only=True)
class LossSection:
    """[loss]: how the loss is computed."""

    num_chunks: int = 1
    """More than 1: the head and the loss process the sequence in N chunks, so that the complete
    logits are never in memory."""


@dataclass(kw_only=True)
class ActivationCheckpointSection:
    """[activation_checkpoint]: what is recomputed to save memory."""

    mode: Recomputation = "none"
    """Which activations are recomputed in the backward pass rather than stored."""


@dataclass(kw_only=True)
class FsdpSection:
    """[fsdp]: how frozen weights are kept."""

    frozen: FrozenStorage = "sharded"
    """`resident`: each rank keeps the complete frozen weights and never gathers them. It costs
    memory and saves communication."""


@dataclass(kw_only=True)
class QuantizeSection:
    """[quantize]: float8 training."""

    recipe: Float8Recipe = "none"
    """Unless `none`, the linears of the layers compute in float8. It needs torchao, torch.compile
    and a GPU of compute capability 8.9 or higher."""
    emulate: bool = False
    """Round as float8 does but compute in float32 or bfloat16: slow, but it shows the effect on the
    loss on any machine."""


@dataclass(kw_only=True)
class Sections:
    """All sections of one file, filled in."""

    model: ModelSection
    data: DataSection
    training: Training
    optimizer: OptimizerSection
    lr_scheduler: LRSchedulersContainer.Config
    loss: LossSection
    activation_checkpoint: ActivationCheckpointSection
    compile: CompileConfig
    parallelism: ParallelismConfig
    fsdp: FsdpSection
    quantize: QuantizeSection
    checkpoint: IdentifiedCheckpointer.Config
    validator: HeldOutValidator.Config
    eval: EvalConfig
    metrics: Metrics.Config
    profiler: Profiler.Config
    watch: WatchConfig
    comm: CommConfig
    debug: DebugConfig


HIDDEN = {
    # A seed checkpoint skips freezing; quantized weights cannot be trained.
    "checkpoint": ("create_seed_checkpoint", "initial_load_in_hf_quantized"),
    "validator": ("dataloader", "last_step", "steps"),
    "metrics": ("last_step", "run_name"),
    "profiler": ("trace_post_processor",),
}
"""Keys of torchtitan's that a file cannot set, because the program sets them."""


def defaults(table: dict[str, Any], on_gpus: bool) -> dict[str, dict[str, Any]]:
    """The defaults in which we differ from torchtitan, and why."""
    varlen = table.get("model", {}).get("attention") == "varlen"
    found: dict[str, dict[str, Any]] = {
        # "spmd_types", torchtitan's default, wants a sharding config on every module.
        "parallelism": {"spmd_backend": "partial_dtensor"},
        # torchtitan allows 300 s for a collective until the first step is done, then 100 s. The
        # validation before the first step, compilation and autotuning may take longer, and so may
        # a later validation, a save or a recompilation.
        "comm": {"init_timeout_seconds": 1800, "train_timeout_seconds": 1800},
        # Colors are for terminals, not for files.
        "metrics": {"disable_color_printing": not sys.stdout.isatty()},
        # Runs are reproducible unless a seed says otherwise.
        "debug": {"seed": 0, "save_config_file": "config.json", "enable_structured_logging": False},
        # Varlen attention asks the host for the longest document, which a CUDA graph cannot.
        "training": {"disable_cuda_graphs": True} if varlen else {},
    }
    if str(table.get("parallelism", {}).get("pipeline_parallel_degree", 1)) != "1":
        found["training"] = {"disable_cuda_graphs": True}  # torchtitan cannot capture stages
    if table.get("checkpoint", {}).keys() & {"initial_load_path", "initial_load_in_hf"}:
        found["checkpoint"] = {"initial_load_model_only": True}
    if not on_gpus:
        found["training"] = {"mixed_precision_param": "float32", "disable_cuda_graphs": True}
        # Gloo keeps the first timeout, and has no flight recorder.
        found["comm"] = {"init_timeout_seconds": 1800, "trace_buf_size": 0}
    return found

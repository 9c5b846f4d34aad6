"""A model with its optimizer, and a training step of it, split into its phases."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.config.configs import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as dist_utils
from torchtitan.distributed.compile import apply_compile

from mixit_titan.bench.plain import PlainLlama
from mixit_titan.bench.settings import Point
from mixit_titan.device import local_device
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.model.initialization import Normal
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.parallelize import parallelize, recomputation
from mixit_titan.model.variants import find_variant

PLAIN = "plain"
"""Stands beside the variants: the plain PyTorch Llama. It is never compiled."""

PHASES = ("data", "forward", "backward", "optimizer")


class Clock(Protocol):
    def start(self) -> None: ...

    def lap(self, phase: str) -> None: ...


class Steps:
    """Training steps of one model, on random tokens."""

    def __init__(self, variant: str, point: Point, dims: ParallelDims | None = None) -> None:
        """`dims`: shard the model over the ranks by FSDP2, as the trainer does; None: whole."""
        self.variant, self.point, self.sharded = variant, point, dims is not None
        self.device = local_device()
        self.generator = torch.Generator().manual_seed(torch.distributed.get_rank() if dims else 0)
        ranks = dims.world_size if dims else 1
        # As in the trainer: the sum over the tokens of all ranks.
        self.tokens_of_all = torch.tensor(point.tokens * ranks, device=self.device)
        self.autocast = contextlib.nullcontext
        if point.dtype != "float32" and dims is None:  # FSDP2 casts by itself
            self.autocast = lambda: torch.autocast(
                self.device.type, dtype=TORCH_DTYPE_MAP[point.dtype]
            )
        self.model, self.loss = _build(variant, point, dims, self.device)
        self.model.train()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = default_adamw().build(model_parts=[self.model])

    def step(self, clock: Clock, batches: int = 1) -> None:
        """One step; `batches`: how many it accumulates the gradients of."""
        clock.start()
        for _ in range(batches):
            tokens_BL, labels_BL = self._draw()
            clock.lap("data")
            with self.autocast():
                loss = self.loss(self.model(tokens_BL), labels_BL) / self.tokens_of_all
            clock.lap("forward")
            loss.backward()
            del loss
            clock.lap("backward")
        dist_utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad()
        clock.lap("optimizer")

    def _draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        shape = self.point.shape
        size = (self.point.batch, shape.seq_len + 1)
        rows = torch.randint(shape.vocab, size, generator=self.generator).to(self.device)
        return rows[:, :-1], rows[:, 1:]


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _build(
    variant: str, point: Point, dims: ParallelDims | None, device: torch.device
) -> tuple[nn.Module, Loss]:
    if variant == PLAIN:
        return PlainLlama(point.shape).to(device), _plain_loss
    compile_config = CompileConfig(enable=point.compile)
    model = _shard(variant, point, dims) if dims else _whole(variant, point)
    model.to_empty(device=device)
    with torch.no_grad():
        model.init_weights(buffer_device=None)
    loss = CrossEntropyLoss(CrossEntropyLoss.Config(), compile_config=compile_config)
    return model, lambda pred, labels: loss(pred, labels)[0]


def _plain_loss(logits_BLV: torch.Tensor, labels_BL: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(
        logits_BLV.flatten(0, 1).float(), labels_BL.flatten(0, 1), reduction="sum"
    )


def model_config(variant: str, point: Point) -> MixitLlama.Config:
    return llama_config(
        point.shape,
        find_variant(variant),
        form=point.form,
        dtype=point.dtype,
        attention="sdpa",
        frozen_storage=point.frozen,
    )


def _meta(variant: str, point: Point) -> nn.Module:
    dist_utils.set_spmd_backend("partial_dtensor")
    config = model_config(variant, point)
    _start_anywhere(config)
    with torch.device("meta"):
        return config.build()


def _start_anywhere(config: object) -> None:
    """Draw the initial weights from torch's generator. Their values do not change the speed, and
    our own draws, the same for any sharding, would take most of the benchmark's time."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "param_init" and value:
            draws = {k: v for k, v in value.items() if isinstance(v, Normal)}
            normal = {k: functools.partial(nn.init.normal_, std=v.std) for k, v in draws.items()}
            config.param_init = {**value, **normal}
        for part in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(part):
                _start_anywhere(part)


def _whole(variant: str, point: Point) -> nn.Module:
    """The light loop's model: activation checkpointing, compile and freezing, no process group."""
    model = _meta(variant, point)
    checkpointing = recomputation(point.ac)
    if checkpointing is not None:
        checkpointing.build(dump_folder="").apply(model)
    if point.compile:
        alone = ParallelDims.from_config(ParallelismConfig(), 1)
        apply_compile(model, compile_config=CompileConfig(enable=True), parallel_dims=alone)
    freeze(model, model.config.variant)
    for module in model.modules():
        if isinstance(module, nn.Linear) and not module.weight.requires_grad:
            # Autocast keeps its cast of a trained weight, but casts a frozen one at every use.
            module.weight.data = module.weight.data.to(TORCH_DTYPE_MAP[point.dtype])
    return model


def _shard(variant: str, point: Point, dims: ParallelDims) -> nn.Module:
    """The trainer's model."""
    return parallelize(
        _meta(variant, point),
        parallel_dims=dims,
        training=TrainingConfig(mixed_precision_param=point.dtype),
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor"),
        compile_config=CompileConfig(enable=point.compile),
        ac_config=recomputation(point.ac),
        dump_folder="",
    )

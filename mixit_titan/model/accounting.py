"""Parameters, FLOPs and memory of a model: the one place that `params`, the trainer's TFLOPS and
MFU, and the benchmark read.

FLOPs per token, n the width and m the length:
- a weight matrix of P entries: 2P forward, 2P for the gradient of its input, and 2P for its own
  gradient if it is trained;
- softmax attention, causal half only: 2mn forward, 4mn backward, per layer;
- mixing, a triangle: mn forward, mn backward, per layer;
- look-ups, norms and activations: nothing.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torchtitan.components.checkpointer.utils import canonical_fqn
from torchtitan.models.common import Linear

from mixit_titan.kernels.causal_mix import Form
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import named_weights, part_of
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.shapes import Shape
from mixit_titan.model.storage import BYTES
from mixit_titan.model.variants import VARIANTS, Variant


@dataclass(frozen=True)
class Counts:
    trainable: int
    frozen: int
    saved: int
    """Elements in a checkpoint: a tied weight is there under both of its names."""
    saved_frozen: int
    """How many of them are frozen."""
    mixing_elements: int
    """Of the matrices, whether they are kept or drawn."""
    mixing_form: Form | None
    mixing_rows: int
    """Of the matrices of all layers and heads: the generated form keeps one mean for each."""
    flops_forward: int
    flops_backward: int

    @property
    def flops_per_token(self) -> int:
        return self.flops_forward + self.flops_backward


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank, activations not included."""

    weights: int
    gradients: int
    optimizer: int
    mixing: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.mixing


def meta_model(config: MixitLlama.Config) -> nn.Module:
    """The model without its data."""
    with torch.device("meta"):
        return config.build()


def count(config: MixitLlama.Config, model: nn.Module, seq_len: int) -> Counts:
    """Counts of a whole, unsharded model (on the meta device) at `seq_len`."""
    frozen_parts = config.variant.frozen
    sizes = {True: 0, False: 0}
    for name, param in named_weights(model):
        sizes[part_of(name) not in frozen_parts] += param.numel()

    forward = backward = 0
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            matrix = module.in_features * module.out_features
            trained = part_of(f"{canonical_fqn(name)}.weight") not in frozen_parts
            forward += 2 * matrix
            backward += (4 if trained else 2) * matrix

    n, layers, m = config.dim, len(config.layers), seq_len
    if config.variant.mixer == "mixing":
        forward += layers * m * n
        backward += layers * m * n
        rows = layers * config.shape.heads * config.shape.seq_len
        form = config.layers[0].attention.inner_attention.form
    else:
        forward += layers * 2 * m * n
        backward += layers * 4 * m * n
        rows, form = 0, None
    saved = {canonical_fqn(name): value.numel() for name, value in model.state_dict().items()}
    saved_frozen = sum(size for name, size in saved.items() if part_of(name) in frozen_parts)
    return Counts(
        trainable=sizes[True],
        frozen=sizes[False],
        saved=sum(saved.values()),
        saved_frozen=saved_frozen,
        mixing_elements=rows * config.shape.seq_len,
        mixing_form=form,
        mixing_rows=rows,
        flops_forward=forward,
        flops_backward=backward,
    )


def flops_per_token(shape: Shape, variant: Variant) -> int:
    """Of a training step at the shape's full length."""
    config = llama_config(shape, variant, attention="sdpa")
    return count(config, meta_model(config), shape.seq_len).flops_per_token


def speed_limit(shape: Shape, variant: Variant) -> float:
    """How many times faster than `standard` the arithmetic lets a variant be."""
    return flops_per_token(shape, VARIANTS["standard"]) / flops_per_token(shape, variant)


def memory_per_rank(counts: Counts, *, ranks: int, dtype: str) -> Memory:
    """FSDP2 over `ranks`: trained weights, their gradients and the two moments of AdamW are sharded
    in float32, frozen weights in `dtype`. A stored mixing matrix in `dtype` is whole on each rank,
    as a GPU keeps it (a CPU keeps 128 columns more)."""
    share = -(-counts.trainable // ranks)
    return Memory(
        weights=4 * share + BYTES[dtype] * -(-counts.frozen // ranks),
        gradients=4 * share,
        optimizer=8 * share,
        mixing=_mixing_bytes(counts, ranks, dtype),
    )


def _mixing_bytes(counts: Counts, ranks: int, dtype: str) -> int:
    if counts.mixing_form == "generated":
        return 4 * counts.mixing_rows  # float32; a layer's key and deviations are a few bytes
    whole = counts.mixing_elements * BYTES[dtype]
    return -(-whole // ranks) if counts.mixing_form == "sharded" else whole


def checkpoint_bytes(counts: Counts, dtype: str) -> int:
    """A full checkpoint: weights as they are kept, and two moments for what is trained."""
    trained = counts.saved - counts.saved_frozen
    return 4 * trained + BYTES[dtype] * counts.saved_frozen + 8 * counts.trainable


def report(config: MixitLlama.Config, *, seq_len: int, ranks: int, dtype: str) -> dict[str, Any]:
    """All of it, as `mixit-titan params --json` prints it."""
    counts = count(config, meta_model(config), seq_len)
    memory = memory_per_rank(counts, ranks=ranks, dtype=dtype)
    total = counts.trainable + counts.frozen
    return {
        "variant": config.variant.name,
        "seq_len": seq_len,
        "trainable_params": counts.trainable,
        "frozen_params": counts.frozen,
        "share_trained": counts.trainable / total,
        "mixing_elements": counts.mixing_elements,
        "mixing_storage": counts.mixing_form,
        "flops_per_token": {
            "forward": counts.flops_forward,
            "backward": counts.flops_backward,
            "total": counts.flops_per_token,
        },
        "checkpoint_bytes": checkpoint_bytes(counts, dtype),
        "ranks": ranks,
        "memory_per_rank_bytes": {**asdict(memory), "total": memory.total},
    }

"""Models the time of a training step. No GPU has confirmed it: trust ratios more than seconds.

step = microbatches x max(products + mixers + tensor parallelism, FSDP2 and HSDP) + optimizer
"""

from dataclasses import dataclass

from mixit_titan.kernels.tiles import Source
from mixit_titan.model.accounting import count, mixer_flops, mixing_layers, weights
from mixit_titan.model.communication import Received
from mixit_titan.model.hardware import GPUS_PER_NODE, NETWORK, Gpu
from mixit_titan.model.memory import Step
from mixit_titan.model.mixing_speed import BANDWIDTH, mixing_seconds
from mixit_titan.model.packing import Packing
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack

# Fractions of a GPU's peak. Those of attention are for head widths up to 64 and above 64, forward
# and backward; the backward pass recomputes the scores, at 2.5 times the forward FLOPs.
PRODUCTS = 0.45
ATTENTION = {"flex": ((0.33, 0.26), (0.39, 0.33)), "flash": ((0.40, 0.32), (0.61, 0.51))}
ATTENTION_BACKWARD = 2.5
LINKS = 0.7
"""The fraction of the links' speed that collectives reach."""
_OPTIMIZER_BYTES = 40
"""Bytes moved for each trained weight: norm and clipping read the gradient twice and write it once,
AdamW reads weight, gradient and moments and writes weight and moments, all in float32."""


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Seconds of one step, by what takes them."""

    products: float
    """All linears, including recomputation."""
    mixers: float
    """Attention or mixing."""
    tensor: float
    """Communication that nothing overlaps."""
    hidden: float
    """Communication of FSDP2 and HSDP, which overlaps with computation."""
    optimizer: float

    @property
    def total(self) -> float:
        return max(self.products + self.mixers + self.tensor, self.hidden) + self.optimizer


def step_seconds(
    shape: Shape,
    stack: Stack,
    step: Step,
    received: Received,
    gpu: Gpu,
    *,
    source: Source | None,
    attention: str,
    packing: Packing | None = None,
) -> Seconds:
    """Return the seconds of a step. `source` is where the tiles of mixing matrices come from,
    `attention` is a key of ATTENTION. Without `packing` each row is one document."""
    counts = count(shape, stack, seq_len=step.length)
    forward, backward = mixer_flops(shape, stack, step.length)
    linear = counts.flops_per_token - forward - backward + _recomputed(shape, stack, step)
    tokens = step.microbatches * step.tokens
    mixing = mixing_layers(shape, stack)
    mixers = 0.0
    if mixing:
        assert source is not None
        heads = shape.heads / step.tensor
        layer = mixing_seconds(source, heads, shape.head_dim, step, gpu, packing)
        mixers += step.microbatches * mixing * layer
    others = forward - mixing * step.length * shape.width
    if others:  # counted as attention with the same FLOPs
        visible = packing.visible(step.length) if packing else 1.0
        rates = ATTENTION[attention][shape.head_dim > 64]
        passes = 2 if step.recomputation == "full" else 1
        work = passes / rates[0] + ATTENTION_BACKWARD / rates[1]
        mixers += tokens * others * visible * work / gpu.flops
    between = _link_seconds(received.replicas, step.replicas, step.tensor * step.shards, gpu)
    sharded = received.weights + received.gradients
    own = counts.trainable / (step.shards * step.tensor)
    return Seconds(
        products=tokens * linear / (PRODUCTS * gpu.flops),
        mixers=mixers,
        tensor=_link_seconds(received.tensor, step.tensor, 1, gpu),
        hidden=_link_seconds(sharded, step.shards, step.tensor, gpu) + between,
        optimizer=_OPTIMIZER_BYTES * own / (BANDWIDTH * gpu.bandwidth),
    )


def _recomputed(shape: Shape, stack: Stack, step: Step) -> int:
    """Return the forward FLOPs per token that recomputation adds outside of the mixers."""
    again: tuple[str, ...] = ()
    if step.recomputation == "full":  # compiled, without the last product, which is not needed
        again = (".wq.", ".wk.", ".wv.", ".wo.", ".w1.", ".w3.")
        again += () if step.compiled else (".w2.",)
    elif step.recomputation == "selective" and not shape.bias:  # every other product
        again = (".wk.", ".wo.", ".w3.")
    names = [w for w in weights(shape, stack) if w.multiplied and w.name.startswith("layers.")]
    return sum(2 * w.elements for w in names if any(part in w.name for part in again))


def _link_seconds(received: int, ranks: int, stride: int, gpu: Gpu) -> float:
    """Return the seconds that a group of `ranks`, spaced by `stride`, takes to receive. Ranks on
    one node share the traffic from other nodes: NCCL lets each of them fetch a part through its own
    adapter."""
    together = max(1, min(ranks, GPUS_PER_NODE // stride))
    inside = received / gpu.link
    across = received / together / NETWORK if together < ranks else 0.0
    return max(inside, across) / LINKS

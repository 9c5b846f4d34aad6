"""A modelled time of a training step. No GPU has confirmed it: trust ratios more than seconds.

step = microbatches x max(products + mixers + tensor parallelism, FSDP2 and HSDP) + optimizer
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from mixit_titan.kernels.forms import Form
from mixit_titan.model.accounting import count, mixer_flops, weights
from mixit_titan.model.communication import Received
from mixit_titan.model.hardware import GPUS_PER_NODE, NETWORK, Gpu
from mixit_titan.model.memory import Step
from mixit_titan.model.shapes import Shape
from mixit_titan.model.storage import DTYPE_BYTES
from mixit_titan.model.variants import Variant

# Shares of a GPU's peak. Those of attention are for head widths up to 64 and above, forward and
# backward; its backward pass computes the scores again, 2.5 times its forward FLOPs.
PRODUCTS = 0.45
ATTENTION = {"flex": ((0.33, 0.26), (0.39, 0.33)), "sdpa": ((0.40, 0.32), (0.61, 0.51))}
ATTENTION_BACKWARD = 2.5
MIXING = 0.5
INSTRUCTIONS_PER_DRAW = 28.9
"""Of the generated form's transposed kernel with Gaussian noise, the slower one, by its machine
code (benchmarks/sass.py). Signs take less, which is not modelled."""
COLUMNS = 256
"""That a drawn tile is multiplied with (kernels/gpu.py)."""
BLOCK = 128
"""Tokens of a side of the blocks that attention and mixing skip where nothing is visible."""
BANDWIDTH = 0.8
"""Share of the memory's bandwidth that kernels reach which do nothing else."""
LINKS = 0.7
"""Share of the links' speed that collectives reach."""
_OPTIMIZER_BYTES = 40
"""Of each trained weight: norm and clipping read the gradient twice and write it once, AdamW reads
weight, gradient and moments and writes weight and moments, all in float32."""


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Of one step."""

    products: float
    """All linears, with what is recomputed of them."""
    mixers: float
    """Attention or mixing."""
    tensor: float
    """Communication that nothing hides."""
    hidden: float
    """Communication of FSDP2 and HSDP, beside which a step computes."""
    optimizer: float

    @property
    def total(self) -> float:
        return max(self.products + self.mixers + self.tensor, self.hidden) + self.optimizer


def step_seconds(
    shape: Shape,
    variant: Variant,
    step: Step,
    received: Received,
    gpu: Gpu,
    *,
    form: Form | None,
    attention: str,
    visible: float = 1.0,
) -> Seconds:
    """`form` is that of the mixing matrices, `attention` the backend of attention, `visible` how
    much of a row's triangle is not masked."""
    counts = count(shape, variant, seq_len=step.length)
    forward, backward = mixer_flops(shape, variant, step.length)
    linear = counts.flops_per_token - forward - backward + _recomputed(shape, variant, step)
    tokens = step.microbatches * step.tokens
    if variant.mixer == "mixing":
        mixers = step.microbatches * _mixing(shape, step, gpu, form, visible)
    else:
        rates = ATTENTION[attention][shape.head_dim > 64]
        passes = 2 if step.recomputation == "full" else 1
        work = passes / rates[0] + ATTENTION_BACKWARD / rates[1]
        mixers = tokens * forward * visible * work / gpu.flops
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


def visible_share(length: int, median: float, sigma: float) -> float:
    """How much of the triangle of a row is left, in blocks, where it is a stretch of a stream of
    documents whose lengths are lognormal.

    Two tokens that are d apart are in one document with probability E max(X - d, 0) / E X.
    """
    normal, mean = NormalDist(), median * math.exp(sigma**2 / 2)

    def together(apart: int) -> float:
        far = math.log(median / apart) / sigma
        return normal.cdf(far + sigma) - apart / mean * normal.cdf(far)

    blocks = -(-length // BLOCK)
    # Of a block of queries and a block of keys before it, the two tokens that are nearest.
    seen = sum((blocks - n) * together(max(1, (n - 1) * BLOCK + 1)) for n in range(blocks))
    return seen / (blocks * (blocks + 1) / 2)


def _recomputed(shape: Shape, variant: Variant, step: Step) -> int:
    """Forward FLOPs per token that recomputation adds outside of the mixers."""
    again: tuple[str, ...] = ()
    if step.recomputation == "full":  # compiled, without the last product, which nobody needs
        again = (".wq.", ".wk.", ".wv.", ".wo.", ".w1.", ".w3.")
        again += () if step.compiled else (".w2.",)
    elif step.recomputation == "selective" and not shape.bias:  # every other product
        again = (".wk.", ".wo.", ".w3.")
    names = [w for w in weights(shape, variant) if w.multiplied and w.name.startswith("layers.")]
    return sum(2 * w.elements for w in names if any(part in w.name for part in again))


def _mixing(shape: Shape, step: Step, gpu: Gpu, form: Form | None, visible: float) -> float:
    """Of all layers, forward and backward, of one microbatch: as long as the slowest of the
    products, the memory (values, and matrices that are kept) and drawing takes."""
    heads = shape.heads / step.tensor
    triangle = heads * step.length**2 / 2
    columns = visible * step.rows * shape.head_dim
    products = 2 * triangle * columns / (MIXING * gpu.flops)
    moved = 2 * step.rows * step.length * heads * shape.head_dim
    drawn = 0.0
    if form == "generated":
        drawn = triangle * math.ceil(columns / COLUMNS) * INSTRUCTIONS_PER_DRAW / gpu.lanes
    else:
        moved += triangle
    memory = DTYPE_BYTES[step.dtype] * moved / (BANDWIDTH * gpu.bandwidth)
    passes = 3 if step.recomputation == "full" else 2
    return shape.layers * passes * max(products, memory, drawn)


def _link_seconds(received: int, ranks: int, stride: int, gpu: Gpu) -> float:
    """`ranks` of a group, `stride` apart. Those of one node share what comes from the others: NCCL
    lets each of them fetch a part, through an adapter of its own."""
    together = max(1, min(ranks, GPUS_PER_NODE // stride))
    inside = received / gpu.link
    across = received / together / NETWORK if together < ranks else 0.0
    return max(inside, across) / LINKS

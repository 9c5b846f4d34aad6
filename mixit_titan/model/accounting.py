"""Parameters, FLOPs and memory of a model, counted in one place for `params`, for the trainer's
TFLOPS and MFU, and for the benchmark.

All of it is arithmetic on the shape and the stack: no model is built, and torch is not needed.

FLOPs per token, with n the width and m the length:
- a weight matrix of P entries: 2P forward, 2P for the gradient of its input, and 2P for its own
  gradient if it is trained;
- softmax attention, causal half only: 2mn forward, 4mn backward, per layer;
- mixing, a triangle: mn forward, mn backward, per layer; other mixers: model/mixers/registry.py;
- look-ups, norms and activations: none.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from mixit_titan.kernels.forms import Form, packed_bytes
from mixit_titan.model.mixers.registry import MIXERS
from mixit_titan.model.pairs import Pair
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack
from mixit_titan.model.storage import DTYPE_BYTES
from mixit_titan.model.variants import VARIANTS


@dataclass(frozen=True)
class Weight:
    """One parameter of the model, with what is needed to count its FLOPs and memory."""

    name: str
    part: str
    """The part of `model.freeze` that it belongs to."""
    elements: int
    trained: bool
    multiplied: bool = False
    """Whether every token is multiplied by it."""


@dataclass(frozen=True)
class Counts:
    """The parameters and FLOPs of a model, with the elements of its mixing matrices counted
    apart."""

    trainable: int
    frozen: int
    saved: int
    """Elements in a checkpoint, where a tied weight appears under both of its names."""
    saved_frozen: int
    """How many of the saved elements are frozen."""
    mixing_elements: int
    """Elements of the mixing matrices, whether these are stored or drawn."""
    mixing_form: Form | None
    mixing_rows: int
    """Rows of the matrices over all layers and heads: the generated form keeps one mean per row."""
    flops_forward: int
    flops_backward: int

    @property
    def flops_per_token(self) -> int:
        return self.flops_forward + self.flops_backward


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank, not counting activations."""

    weights: int
    gradients: int
    optimizer: int
    mixing: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.mixing


def weights(shape: Shape, stack: Stack) -> Iterator[Weight]:
    """Yield every parameter by its name in the model. A tied head has no weight of its own."""
    n, vocab = shape.width, shape.vocab
    trained = {part: not stack.freezes(part) for part in ("embedding", "norm", "head")}
    yield Weight("tok_embeddings.weight", "embedding", vocab * n, trained["embedding"])
    if stack.mixes:
        size = shape.seq_len * n
        yield Weight("tok_embeddings.position_weight", "embedding", size, trained["embedding"])
    for layer, pair in enumerate(stack.fill(shape.layers)):
        for weight in layer_weights(shape, pair):
            yield replace(weight, name=f"layers.{layer}.{weight.name}")
    yield Weight("norm.weight", "norm", n, trained["norm"])
    if not shape.tied:
        yield Weight("lm_head.weight", "head", vocab * n, trained["head"], multiplied=True)


def layer_weights(shape: Shape, pair: Pair) -> Iterator[Weight]:
    """Yield the parameters of one layer by their names within the layer."""
    trained = {part: part not in pair.frozen for part in pair.parts}
    for name in ("attention_norm", "ffn_norm"):
        yield Weight(f"{name}.weight", "norm", shape.width, trained["norm"])
    for name, part, fan_in, fan_out in _linears(shape, pair):
        yield Weight(f"{name}.weight", part, fan_in * fan_out, trained[part], multiplied=True)
        if shape.bias:
            yield Weight(f"{name}.bias", part, fan_out, trained[part])
    if "matrix" in pair.parts:
        size = shape.heads * shape.seq_len**2
        yield Weight("attention.inner_attention.weight", "matrix", size, trained["matrix"])


def _linears(shape: Shape, pair: Pair) -> list[tuple[str, str, int, int]]:
    """Yield the name, part, inputs and outputs of each linear of a layer."""
    n, hidden = shape.width, shape.hidden
    mlp = [(f"feed_forward.w{k}", "mlp", n, hidden) for k in (1, 3)]
    shared = [("attention.wo", "o", n, n), *mlp, ("feed_forward.w2", "mlp", hidden, n)]
    if not pair.attends:  # it has as many value heads as mixing heads
        return [("attention.wv", "v", n, n), *shared]
    kv = (shape.kv_heads or shape.heads) * shape.head_dim
    sizes = {"q": ("qk", n), "k": ("qk", kv), "v": ("v", kv)}
    own = [(f"attention.qkv_linear.w{k}", part, n, size) for k, (part, size) in sizes.items()]
    return [*own, *shared]


def count(
    shape: Shape,
    stack: Stack,
    *,
    seq_len: int | None = None,
    form: Form | None = None,
) -> Counts:
    """Return the counts of a complete model; FLOPs are per token at `seq_len` (default: the
    shape's)."""
    m = shape.seq_len if seq_len is None else seq_len
    sizes, forward, backward = {True: 0, False: 0}, 0, 0
    for weight in weights(shape, stack):
        sizes[weight.trained] += weight.elements
        if weight.multiplied:
            forward += 2 * weight.elements
            backward += (4 if weight.trained else 2) * weight.elements
    tied = shape.vocab * shape.width if shape.tied else 0  # the embedding's weight, counted again
    tied_frozen = tied if stack.freezes("head") else 0
    forward += 2 * tied
    backward += 4 * tied - 2 * tied_frozen
    mixer_forward, mixer_backward = mixer_flops(shape, stack, m)
    rows = mixing_layers(shape, stack) * shape.heads * shape.seq_len
    return Counts(
        trainable=sizes[True],
        frozen=sizes[False],
        saved=sizes[True] + sizes[False] + tied,
        saved_frozen=sizes[False] + tied_frozen,
        mixing_elements=rows * shape.seq_len,
        mixing_form=form if rows else None,
        mixing_rows=rows,
        flops_forward=forward + mixer_forward,
        flops_backward=backward + mixer_backward,
    )


def mixing_layers(shape: Shape, stack: Stack) -> int:
    """Return how many layers have MixiT's mixing matrices."""
    return sum(pair.mixer == "mixing" for pair in stack.fill(shape.layers))


def mixer_flops(shape: Shape, stack: Stack, seq_len: int) -> tuple[int, int]:
    """Return the FLOPs per token of the mixers of all layers, forward and backward."""
    each = [MIXERS[pair.mixer].flops(shape, seq_len) for pair in stack.fill(shape.layers)]
    return sum(forward for forward, _ in each), sum(backward for _, backward in each)


def flops_per_token(shape: Shape, stack: Stack) -> int:
    """Return the FLOPs per token of a training step at the shape's full length."""
    return count(shape, stack).flops_per_token


def speed_limit(shape: Shape, stack: Stack) -> float:
    """Return the FLOP ratio: how many times as many FLOPs per token `standard` takes as the stack.

    A measured speedup can exceed it, since attention reaches less of a GPU's peak than products do.
    """
    return flops_per_token(shape, VARIANTS["standard"]) / flops_per_token(shape, stack)


def memory_per_rank(counts: Counts, *, ranks: int, dtype: str) -> Memory:
    """Estimate the state on each rank. FSDP2 shards trained weights, their gradients and AdamW's
    two moments in float32, and frozen weights in `dtype`, over `ranks`. Stored mixing matrices, in
    `dtype`, are complete on each rank, packed as on a GPU (a CPU keeps both halves and 128 more
    columns)."""
    share = -(-counts.trainable // ranks)
    return Memory(
        weights=4 * share + DTYPE_BYTES[dtype] * -(-counts.frozen // ranks),
        gradients=4 * share,
        optimizer=8 * share,
        mixing=_mixing_bytes(counts, ranks, dtype),
    )


def _mixing_bytes(counts: Counts, ranks: int, dtype: str) -> int:
    if counts.mixing_form == "generated":
        return 4 * counts.mixing_rows  # float32; a layer's key and deviations take only a few bytes
    if counts.mixing_form == "sharded":
        return -(-counts.mixing_elements * DTYPE_BYTES[dtype] // ranks)
    if not counts.mixing_rows:
        return 0
    length = counts.mixing_elements // counts.mixing_rows
    return counts.mixing_rows // length * packed_bytes(length, DTYPE_BYTES[dtype])


def least_bytes(shape: Shape, stack: Stack, *, rows: int, seq_len: int, ranks: int = 1) -> int:
    """Return a lower bound on the bytes that a CPU rank needs for training: weights, gradients,
    moments, the logits of its rows, and the activations passed between layers. Mixing matrices are
    left out, since they need not be stored."""
    state = memory_per_rank(count(shape, stack, form="generated"), ranks=ranks, dtype="float32")
    return state.total + 4 * rows * seq_len * (shape.vocab + shape.layers * shape.width)


def checkpoint_bytes(counts: Counts, dtype: str) -> int:
    """Return the bytes of a full checkpoint: weights in the dtype they are kept in, and two moments
    for each trained weight."""
    trained = counts.saved - counts.saved_frozen
    return 4 * trained + DTYPE_BYTES[dtype] * counts.saved_frozen + 8 * counts.trainable


def report(
    shape: Shape, stack: Stack, form: Form, *, seq_len: int, ranks: int, dtype: str
) -> dict[str, Any]:
    """Return all counts in the form that `mixit-titan params --json` prints."""
    counts = count(shape, stack, seq_len=seq_len, form=form)
    memory = memory_per_rank(counts, ranks=ranks, dtype=dtype)
    total = counts.trainable + counts.frozen
    return {
        "variant": stack.name,
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

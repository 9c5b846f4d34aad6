"""Estimates the memory of one rank in a training step from the shape of the model and the way the
step is run. It is arithmetic: no model is built, and torch is not needed.

The peak is the larger of two moments, at both of which the activations of all layers are held: in
the loss, with the logits of a chunk; and in the backward pass of the last layer, with what is
recomputed of it and the gradients of its activations. The optimizer step takes less. What a layer
keeps was read off the allocations of eager steps, and for compiled blocks off the graphs that
torch.compile's partitioner cuts (tests/model/test_memory.py does both).

Per token: n width, f width of the MLP, k width of keys and of values.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from mixit_titan.kernels.forms import Form
from mixit_titan.model.accounting import Weight, count, layer_weights, memory_per_rank, weights
from mixit_titan.model.mixers.registry import MIXERS
from mixit_titan.model.pairs import Pair
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack
from mixit_titan.model.storage import DTYPE_BYTES

_FLOAT32 = 4
_FINAL = 3
"""Widths that the last norm keeps: its input, what it multiplies by its weight, and its output."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """How a training step is run, as far as its memory depends on it."""

    rows: int
    """Rows of one microbatch on each data-parallel rank."""
    length: int
    documents: bool = False
    """Whether rows hold several documents, each of which is mixed separately."""
    dtype: str = "bfloat16"
    """The dtype that products are computed in."""
    recomputation: str = "none"
    compiled: bool = True
    """Whether the blocks and the loss are compiled."""
    chunks: int = 1
    """Chunks of the sequence in which the head and the loss are computed."""
    microbatches: int = 1
    graphs: bool = False
    """Whether forward and backward are one CUDA graph, whose memory nothing else can use."""
    validates: bool = False
    shards: int = 1
    """Ranks that FSDP2 shards the weights over, including the ranks that share a row."""
    replicas: int = 1
    """Replicas of the shards (HSDP)."""
    tensor: int = 1
    """Ranks that compute each layer together, with sequence parallelism."""
    context: int = 1
    """Ranks that each row is split across."""
    frozen: str = "sharded"
    """How FSDP2 keeps frozen weights."""
    resharded: bool = True
    """Whether a layer's gathered weights are freed after its forward pass."""
    offloaded: bool = False
    """Whether weights, gradients and moments are in the memory of the CPU."""
    moment_bytes: int = 4

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch on one rank."""
        return -(-self.rows * self.length // (self.context * self.tensor))


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Bytes that are allocated and freed with the tokens."""

    kept: int
    """Kept by all layers from the forward pass for the backward pass."""
    loss: int
    """Added in the loss: hidden states, logits and their gradients."""
    backward: int
    """Added in the backward pass of a layer: what is recomputed, and gradients."""


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Bytes on one rank, by what they are for."""

    weights: int
    gradients: int
    optimizer: int
    mixing: int
    gathered: int
    """Sharded weights that FSDP2 holds complete: the head, one layer and the next."""
    activations: int
    logits: int
    """Held in the loss, including the full gradient of the head."""
    backward: int
    """Held in the backward pass of a layer, including its full gradients before they are
    scattered."""
    validation: int
    """A validation forward pass beside a CUDA graph, which keeps its own memory."""

    @property
    def total(self) -> int:
        """The peak: `logits` and `backward` are never held at the same time."""
        parts = asdict(self)
        later = max(parts.pop("logits"), parts.pop("backward"))
        return sum(parts.values()) + later

    @property
    def without_matrices(self) -> int:
        """The peak without the mixing matrices."""
        return self.total - self.mixing


def step_memory(shape: Shape, stack: Stack, step: Step, form: Form | None) -> StepMemory:
    """Estimate the memory of a rank; `form` is that of the mixing matrices, if there are any."""
    counts = count(shape, stack, form=form)
    state = memory_per_rank(counts, ranks=step.shards * step.tensor, dtype=step.dtype)
    whole = 0
    if step.frozen == "resident":
        size = DTYPE_BYTES[step.dtype] * counts.frozen // step.tensor
        whole = size - size // step.shards
    on_gpu = 0 if step.offloaded else 1
    used = activations(shape, stack, step)
    head, layer = _largest(shape, stack, lambda weight: weight.trained)
    # A chunked head accumulates its gradient in float32, and FSDP2 copies it to scatter it. An
    # unchunked one is scattered from the dtype it was computed in.
    size = DTYPE_BYTES[step.dtype]
    in_loss = head * ((_FLOAT32 if step.chunks > 1 else size) + _FLOAT32)
    in_backward = layer * (size + _FLOAT32) + head * _FLOAT32
    maps = sum(MIXERS[pair.mixer].buffered for pair in stack.fill(shape.layers))
    maps *= _FLOAT32 * shape.heads * shape.seq_len**2
    return StepMemory(
        weights=on_gpu * (state.weights + whole) + maps // step.tensor,
        gradients=on_gpu * state.gradients,
        optimizer=on_gpu * state.optimizer * step.moment_bytes // 4,
        mixing=state.mixing // (1 if form == "sharded" else step.tensor),
        gathered=_gathered(shape, stack, step, form),
        activations=used.kept,
        logits=used.loss + in_loss // step.tensor,
        backward=used.backward + in_backward // step.tensor,
        validation=_validation(shape, step) if step.graphs and step.validates else 0,
    )


def activations(shape: Shape, stack: Stack, step: Step) -> Activations:
    """Estimate the activations of a step on one rank."""
    kept = backward = 0  # if the head alone has a backward pass
    if any(weight.trained for weight in weights(shape, stack) if weight.part != "head"):
        pairs = stack.fill(shape.layers)
        each = {pair: _keeps(shape, pair, step, step.recomputation) for pair in set(pairs)}
        kept = sum(each[pair] for pair in pairs)
        backward = max(_backward(shape, pair, step) - each[pair] for pair in each)
    size, tokens = DTYPE_BYTES[step.dtype], step.tokens
    hidden = tokens * _FINAL * shape.width * size
    if step.chunks > 1:  # the chunks are copies, and their gradients are accumulated in float32
        hidden += tokens * shape.width * (size + _FLOAT32)
    # Compiled, the loss reads the logits and writes their gradient. Eager, it has three copies in
    # float32, and with chunks the logits as well.
    each = 2 * size if step.compiled else 3 * _FLOAT32 + (size if step.chunks > 1 else 0)
    return Activations(
        kept=tokens * kept * size,
        loss=hidden + -(-tokens // step.chunks) * shape.vocab * each,
        backward=tokens * backward * size,
    )


def _backward(shape: Shape, pair: Pair, step: Step) -> int:
    """Return the elements per token in the backward pass of one layer, including what was kept of
    it: the gradients of the layer's output and of the three parts of its MLP. A kept gate product
    has been freed by then. If they are larger, return instead the copies of a mixer's matrix, by
    which time all that was kept of the MLP has been freed."""
    product = 0 if "mlp" in pair.frozen else shape.hidden
    in_mlp = shape.width + 3 * shape.hidden - product
    in_mixer = -(2 * shape.width + 3 * shape.hidden)
    in_mixer -= 0 if step.compiled else shape.width + shape.hidden
    if MIXERS[pair.mixer].copied:
        matrix = MIXERS[pair.mixer].keeps(shape, step.length, step.documents)
        in_mixer += (2 if step.documents else 1) * matrix
    return _keeps(shape, pair, step, "none") + max(in_mlp, in_mixer)


def _keeps(shape: Shape, pair: Pair, step: Step, recomputation: str) -> int:
    """Return the elements per token that one layer keeps, including the matrix of a mixer without a
    fast path, which is recomputed wherever anything is."""
    kept = layer_keeps(shape, pair, recomputation, compiled=step.compiled)
    if recomputation == "none":
        kept += MIXERS[pair.mixer].keeps(shape, step.length, step.documents)
        if "matrix" in pair.parts and "matrix" not in pair.frozen:
            kept += shape.width  # the values that its gradient is computed from
    return kept


def layer_keeps(shape: Shape, pair: Pair, recomputation: str, *, compiled: bool) -> int:
    """Return the elements, in the compute dtype, that one layer keeps per token for its backward
    pass, not counting a mixer's matrix."""
    n, f, attends = shape.width, shape.hidden, pair.attends
    k = (shape.kv_heads or shape.heads) * shape.head_dim
    lse = 2 * shape.heads  # per head, in float32
    trained = {part: part not in pair.frozen for part in ("qk", "v", "o", "mlp", "norm")}
    if recomputation == "full":
        return n
    mixed = n + lse if attends else n * trained["o"]
    if recomputation == "selective":
        # Input, mixed values, and every other product that the backward pass needs: q, v and the
        # first of the MLP. With biases a product is an addmm, and all of those are kept.
        kept = n + mixed + (n + k if attends else 0) + f
        if shape.bias:
            kept += (k if attends else 0) + n + f
        if not compiled:  # eager code cannot know that they are not needed
            kept += n if attends else 2 * n
        return kept
    # Input, output of the norm, q, k, v, mixed values; then h, output of the norm, both parts of
    # the gate and their product. Eager code also keeps what a norm multiplies by its weight, and
    # the activation of the gate.
    into_mixer = n * (trained["v"] or (attends and trained["qk"]))
    kept = n + into_mixer + (n + 2 * k if attends else 0) + mixed
    kept += n + n * trained["mlp"] + 2 * f + f * trained["mlp"]
    return kept if compiled else kept + 2 * n * trained["norm"] + f


def _largest(shape: Shape, stack: Stack, counted: Callable[[Weight], bool]) -> tuple[int, int]:
    """Return the elements that FSDP2 gathers at once: the weights of the head, and those of the
    largest layer, as far as `counted` is true of them."""
    # A tied embedding is in one group with the head.
    names = ("tok_embeddings.", "norm.") if shape.tied else ("norm.", "lm_head.")
    head = [weight for weight in weights(shape, stack) if weight.name.startswith(names)]
    layers = [list(layer_weights(shape, pair)) for pair in set(stack.pairs)]
    head_size, *sizes = (sum(w.elements for w in group if counted(w)) for group in (head, *layers))
    return head_size, max(sizes)


def _gathered(shape: Shape, stack: Stack, step: Step, form: Form | None) -> int:
    """Return the bytes gathered in the compute dtype: the head's group, which is kept from the
    forward to the backward pass, and one layer and the next, or all layers if they are not
    resharded."""
    resident = step.frozen == "resident"
    head, layer = _largest(shape, stack, lambda weight: weight.trained or not resident)
    if form == "sharded":
        layer += shape.heads * shape.seq_len**2
    layers = min(2, shape.layers) if step.resharded else shape.layers
    return DTYPE_BYTES[step.dtype] * (head + layers * layer) // step.tensor


def _validation(shape: Shape, step: Step) -> int:
    """Return the bytes of a forward pass: one layer at its widest, and the logits of a chunk."""
    size = DTYPE_BYTES[step.dtype]
    layer = step.tokens * 3 * (shape.width + shape.hidden) * size
    each = size if step.compiled else size + 2 * _FLOAT32
    return layer + -(-step.tokens // step.chunks) * shape.vocab * each

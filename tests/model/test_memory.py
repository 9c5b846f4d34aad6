"""The model of a step's memory, compared with the allocations of real steps and with the graphs
that torch.compile cuts."""

import dataclasses
import functools
from pathlib import Path

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torchtitan.distributed import utils as dist_utils

from mixit_titan.bench.memory import peak_memory
from mixit_titan.bench.steps import build_steps
from mixit_titan.kernels.stored import stored_columns
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.model.memory import Step, activations, layer_keeps, step_memory
from mixit_titan.model.mixers.positional import document_mask
from mixit_titan.model.parallelize import recomputation
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import FLAVORS, Shape
from mixit_titan.model.stack import Stack, uniform
from mixit_titan.model.variants import VARIANTS
from tests.bench import conftest
from tests.bench.conftest import make_point

DEEP = Shape(width=64, layers=4, heads=4, kv_heads=2, hidden=256, vocab=64, seq_len=64)
WIDE_VOCAB = Shape(width=64, layers=2, heads=4, hidden=96, vocab=1024, seq_len=64, tied=True)


one_rank = conftest.one_rank


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize(
    ("variant", "mode", "shape"),
    [
        ("standard", "none", DEEP),
        ("standard", "selective", DEEP),
        ("standard", "full", DEEP),
        ("standard", "none", WIDE_VOCAB),
        ("frozen_mlp", "none", DEEP),
        ("random", "none", DEEP),
        ("mixit", "none", DEEP),
        ("mixit", "full", DEEP),
        ("mixit", "full", WIDE_VOCAB),
    ],
)
def test_memory_of_an_eager_step_is_that_measured(
    variant: str, mode: str, shape: Shape, tmp_path: Path
) -> None:
    sizes = " ".join(
        f"--{key.replace('_', '-')} {getattr(shape, key)}"
        for key in ("width", "layers", "heads", "hidden", "vocab", "seq_len")
    )
    keys = f"--model.kv_heads {shape.kv_heads}" if shape.kv_heads else ""
    point = make_point(f"{sizes} {keys} --batch 8 --ac {mode}{' --model.tied' * shape.tied}")
    assert point.shape == shape
    measured = peak_memory(lambda: build_steps(variant, point, tmp_path)).accumulating
    step = Step(rows=8, length=shape.seq_len, dtype="float32", recomputation=mode, compiled=False)
    modeled = step_memory(shape, VARIANTS[variant], step, "stored")
    # On a CPU the matrices are not packed, and have columns for their transpose, too; and one rank
    # gathers nothing.
    columns = stored_columns(Recipe().matrix_spec(0, shape), torch.device("cpu"))
    matrices = 4 * shape.layers * shape.heads * shape.seq_len * columns if modeled.mixing else 0
    total = modeled.total - modeled.gathered - modeled.mixing + matrices
    # Selective: eager code gives some of what it has kept back earlier.
    assert total == pytest.approx(measured, rel=0.06 if mode == "selective" else 0.03)


LONG = Shape(width=64, layers=2, heads=4, hidden=256, vocab=64, seq_len=256)


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("mixer", ["uniform", "linear", "embedding", "learned", "window"])
@pytest.mark.parametrize("documents", ["on", "off"])
def test_memory_of_a_mixer_without_a_fast_path(mixer: str, documents: str, tmp_path: Path) -> None:
    """Its matrices, one for each row and head, are most of what the layers keep."""
    sizes = "--width 64 --layers 2 --heads 4 --hidden 256 --vocab 64 --seq-len 256"
    point = make_point(f"{sizes} --batch 4 --ac none --documents {documents}")
    measured = peak_memory(lambda: build_steps(mixer, point, tmp_path)).accumulating
    step = Step(rows=4, length=256, documents=documents == "on", dtype="float32", compiled=False)
    modeled = step_memory(LONG, uniform(mixer), step, None)
    assert modeled.total - modeled.gathered == pytest.approx(measured, rel=0.04)


def compiled_block(
    shape: Shape, variant: Stack, mode: str, positions: torch.Tensor | None = None
) -> tuple[float, int]:
    """Elements of two bytes that a compiled block hands to its backward pass, for each token; and
    how many products that pass has. `positions` are those of documents in a row."""
    dist_utils.set_spmd_backend("partial_dtensor")
    torch._dynamo.reset()
    model = llama_config(shape, variant, attention="sdpa", dtype="bfloat16", form="stored").build()
    model.init_states()
    checkpointing = recomputation(mode)
    if checkpointing is not None:
        checkpointing.build(dump_folder="").apply(model)
    freeze(model, variant)
    model.to(torch.bfloat16)
    x_BLD = torch.randn(2, shape.seq_len, shape.width, dtype=torch.bfloat16, requires_grad=True)
    kept: dict[int, int] = {}

    def look(graph: fx.GraphModule, inputs: list) -> object:
        def run(*given: torch.Tensor) -> object:
            _, *handed = outputs = graph(*given)
            # Weights and matrices are there anyway. Two views of one storage are counted once.
            there = {_storage(g) for g in given if isinstance(g, torch.Tensor)} - {_storage(x_BLD)}
            for tensor in handed:
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                    kept[_storage(tensor)] = tensor.untyped_storage().nbytes()
            for storage in there:
                kept.pop(storage, None)
            return outputs

        return make_boxed_func(run)

    products = []

    def look_back(graph: fx.GraphModule, inputs: list) -> object:
        products.extend(n for n in graph.graph.nodes if n.target is torch.ops.aten.mm.default)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=look,
        bw_compiler=look_back,
        partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
        decompositions=select_decomp_table(),
    )
    block = model.layers["0"]
    block.compile(backend=backend, fullgraph=True)
    mask = document_mask(positions) if positions is not None and variant.attends else None
    block(x_BLD, mask, positions).sum().backward()
    return sum(kept.values()) / 2 / (x_BLD.shape[0] * x_BLD.shape[1]), len(products)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "selective", "full"])
@pytest.mark.parametrize("variant", ["standard", "frozen_mlp", "random", "mixit"])
def test_a_compiled_block_keeps_what_the_model_says(variant: str, mode: str) -> None:
    shape = Shape(width=128, layers=1, heads=8, kv_heads=2, hidden=384, vocab=64, seq_len=96)
    modeled = layer_keeps(shape, VARIANTS[variant].pairs[0], mode, compiled=True)
    if mode == "none":
        modeled += 2 * 2  # float32 statistics of both norms
    elif mode == "selective" and variant != "mixit":
        # torchtitan does not list the CPU's attention among what is kept; it does flex, and SDPA
        # on a GPU.
        modeled -= shape.width + 2 * shape.heads
    kept, products = compiled_block(shape, VARIANTS[variant], mode)
    assert kept == modeled
    if variant in ("standard", "mixit"):  # two for each linear, and those of model/speed.py
        linears = 7 if variant == "standard" else 5
        again = {"none": 0, "selective": 3 if variant == "standard" else 2, "full": linears - 1}
        assert products == 2 * linears + again[mode]


@pytest.mark.slow
@pytest.mark.parametrize("mixer", ["uniform", "learned", "window"])
def test_a_compiled_block_keeps_the_matrices_of_documents(mixer: str) -> None:
    shape = Shape(width=128, layers=1, heads=8, hidden=384, vocab=64, seq_len=96, window=16)
    positions = (torch.arange(96) % 40).expand(2, -1)
    step = Step(rows=2, length=96, documents=True)
    modeled = activations(shape, uniform(mixer), step).kept // (2 * step.tokens)
    kept, _ = compiled_block(shape, uniform(mixer), "none", positions)
    # The statistics of both norms; and what turns queries and keys by their positions.
    assert kept == modeled + 2 * 2 + (2 * shape.head_dim if mixer == "window" else 0)


def test_nothing_is_kept_where_only_the_head_is_trained() -> None:
    frozen = ("embedding", "norm", "qk", "v", "o", "mlp")
    step = Step(rows=4, length=64)
    used = activations(DEEP, uniform("attention", frozen), step)
    assert used.kept == used.backward == 0 < used.loss


def test_a_step_of_8b_by_hand() -> None:
    """4 rows of 2048 on 8 shards, compiled, everything recomputed, 8 chunks."""
    shape, tokens, vocab, n, f = FLAVORS["8b"], 8192, 128256, 4096, 14336
    step = Step(rows=4, length=2048, recomputation="full", chunks=8, shards=8)
    memory = step_memory(shape, VARIANTS["standard"], step, None)
    layer = 2 * n * n + 2 * n * n // 4 + 3 * n * f + 2 * n
    head = vocab * n + n
    trained = 32 * layer + head + vocab * n
    assert memory.weights == memory.gradients == memory.optimizer // 2 == 4 * trained // 8
    assert memory.gathered == 2 * (head + 2 * layer)
    assert memory.activations == 32 * tokens * n * 2
    chunk = tokens // 8 * vocab
    hidden = tokens * n * (3 * 2 + 2 + 4)
    assert memory.logits == chunk * 4 + hidden + 8 * head
    kept = 6 * n + 2 * n // 4 + 3 * f + 2 * 32
    again = kept - n + n + 2 * f
    assert memory.backward == 2 * tokens * again + 6 * layer + 4 * head
    parts = memory.weights + memory.gradients + memory.optimizer + memory.gathered
    assert memory.total == parts + memory.activations + max(memory.logits, memory.backward)


def test_what_ranks_share_and_what_each_has() -> None:
    shape, variant = FLAVORS["1b"], VARIANTS["frozen_mlp"]
    one = Step(rows=8, length=2048, chunks=8)
    alone = step_memory(shape, variant, one, None)
    eight = step_memory(shape, variant, dataclasses.replace(one, shards=8), None)
    assert eight.weights == -(-alone.weights // 8) and eight.optimizer == -(-alone.optimizer // 8)
    assert eight.activations == alone.activations and eight.gathered == alone.gathered
    split = step_memory(shape, variant, dataclasses.replace(one, tensor=2), None)
    assert split.activations == alone.activations // 2 and split.logits < alone.logits
    # Resident: complete on each rank, and never gathered.
    frozen = 16 * 3 * 2048 * 8192
    resident = step_memory(
        shape, variant, dataclasses.replace(one, shards=8, frozen="resident"), None
    )
    assert resident.weights - eight.weights == 2 * frozen * 7 // 8
    assert eight.gathered - resident.gathered == 2 * 2 * frozen // 16


def test_a_graph_keeps_its_memory_from_the_validation() -> None:
    step = Step(rows=8, length=2048, chunks=8, graphs=True, validates=True)
    with_graph = step_memory(FLAVORS["160m"], VARIANTS["mixit"], step, "stored")
    without = step_memory(
        FLAVORS["160m"], VARIANTS["mixit"], dataclasses.replace(step, graphs=False), "stored"
    )
    logits = 8 * 2048 // 8 * 128256 * 2
    assert with_graph.validation == logits + 8 * 2048 * 3 * (768 + 2048) * 2
    assert with_graph.total - without.total == with_graph.validation and not without.validation

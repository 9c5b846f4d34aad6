import dataclasses

import pytest
import torch

from mixit_titan.kernels.forms import Form
from mixit_titan.model.accounting import (
    Counts,
    checkpoint_bytes,
    count,
    memory_per_rank,
    speed_limit,
    weights,
)
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import named_weights, part_of
from mixit_titan.model.shapes import FLAVORS, Shape
from mixit_titan.model.variants import VARIANTS

# Table 4 of the paper, exactly.
TABLE4 = {"standard": 790400, "frozen_mlp": 394880, "frozen_qk": 724352, "mixit": 724736}


def counts_of(variant: str, shape: Shape, form: Form | None = None) -> Counts:
    return count(shape, VARIANTS[variant], form=form)


SHAPES = {
    **FLAVORS,
    "tied, biased, grouped": Shape(
        **{"width": 32, "layers": 3, "heads": 4, "kv_heads": 2, "hidden": 48, "vocab": 50},
        **{"seq_len": 24, "bias": True, "tied": True},
    ),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_arithmetic_is_that_of_the_model(variant: str, shape: Shape) -> None:
    """Names, sizes and parts of all parameters, and the matrices that tokens are multiplied by, of
    a model that torchtitan has built."""
    with torch.device("meta"):
        model = llama_config(shape, VARIANTS[variant], attention="sdpa").build()
    if shape.tied:
        model.tok_embeddings.weight = model.lm_head.weight
    listed = {weight.name: weight for weight in weights(shape, VARIANTS[variant])}
    assert {name: weight.elements for name, weight in listed.items()} == {
        name: param.numel() for name, param in model.named_parameters()
    }
    assert all(part_of(name) == weight.part for name, weight in listed.items())
    linears = [n for n, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    multiplied = [name for name, weight in listed.items() if weight.multiplied]
    tied = ["lm_head"] if shape.tied else []
    assert sorted(multiplied) == sorted(f"{n}.weight" for n in linears if n not in tied)
    saved = sum(value.numel() for value in model.state_dict().values())
    assert count(shape, VARIANTS[variant]).saved == saved


@pytest.mark.parametrize(("variant", "expected"), TABLE4.items())
def test_trainable_parameters_of_table_4(variant: str, expected: int) -> None:
    assert counts_of(variant, FLAVORS["table4"]).trainable == expected


def test_limits_of_the_throughput_ratios() -> None:
    """Ratios of FLOPs worked out by hand for width 512, 12 layers, vocabulary 8192, length 256."""
    shape = Shape(width=512, layers=12, heads=8, hidden=2048, vocab=8192, seq_len=256)
    standard = 6 * (12 * (4 * 512**2 + 3 * 512 * 2048) + 512 * 8192) + 12 * 6 * 256 * 512
    saved = {
        "frozen_qk": 12 * 2 * 2 * 512**2,
        "frozen_mlp": 12 * 2 * 3 * 512 * 2048,
        "mixit": 12 * (6 * 2 * 512**2 + 4 * 256 * 512),
    }
    for variant, limit in {"frozen_qk": 1.039, "frozen_mlp": 1.289, "mixit": 1.150}.items():
        exact = standard / (standard - saved[variant])
        assert speed_limit(shape, VARIANTS[variant]) == exact == pytest.approx(limit, abs=1e-3)


def test_flops_of_one_layer_term_by_term() -> None:
    n, h, v, m = 64, 192, 100, 32
    shape = Shape(width=n, layers=1, heads=4, hidden=h, vocab=v, seq_len=m)
    mlp, head = 3 * n * h, n * v
    standard = counts_of("standard", shape)
    assert standard.flops_forward == 2 * (4 * n * n + mlp + head) + 2 * m * n
    assert standard.flops_backward == 4 * (4 * n * n + mlp + head) + 4 * m * n
    random = counts_of("random", shape)
    assert random.flops_backward == 2 * (4 * n * n + mlp) + 4 * head + 4 * m * n
    mixit = counts_of("mixit", shape)
    assert mixit.flops_forward == 2 * (2 * n * n + mlp + head) + m * n
    assert mixit.flops_backward == 4 * (2 * n * n + mlp + head) + m * n
    assert mixit.mixing_elements == 4 * m * m


def test_memory_is_that_of_what_trains() -> None:
    frozen = counts_of("frozen_mlp", FLAVORS["table4"])
    memory = memory_per_rank(frozen, ranks=1, dtype="float32")
    assert memory.weights == 4 * 790400
    assert memory.gradients == 4 * 394880
    assert memory.optimizer == 8 * 394880
    assert checkpoint_bytes(frozen, "float32") == 4 * 790400 + 8 * 394880
    # In bfloat16 what is frozen takes two bytes, in memory and in a checkpoint.
    half = memory_per_rank(frozen, ranks=1, dtype="bfloat16")
    assert half.weights == 4 * 394880 + 2 * 395520
    assert checkpoint_bytes(frozen, "bfloat16") == 4 * 394880 + 2 * 395520 + 8 * 394880
    mixit = counts_of("mixit", FLAVORS["8b"], "stored")
    half = memory_per_rank(mixit, ranks=64, dtype="bfloat16")
    # All on every rank: 16 blocks of 128 rows have 1 + 2 + ... + 16 = 136 tiles of 128 x 128.
    assert half.mixing == 2 * 32 * 32 * 136 * 128**2
    assert half.optimizer == 8 * -(-mixit.trainable // 64)


def test_mixing_state_of_the_forms_at_length_8192() -> None:
    """32 layers of 32 heads: 137 GB of matrices in bfloat16, half of them and of their diagonal
    (64 tiles of 4096) if packed, or one float32 number a row."""
    shape = dataclasses.replace(FLAVORS["8b"], seq_len=8192)
    expected = {"stored": 69_793_218_560, "sharded": 17_179_869_184, "generated": 33_554_432}
    for form, size in expected.items():
        counts = counts_of("mixit", shape, form)
        assert memory_per_rank(counts, ranks=8, dtype="bfloat16").mixing == size


@pytest.mark.parametrize("form", ["stored", "sharded", "generated"])
def test_a_matrix_is_no_parameter(form: Form) -> None:
    model = llama_config(FLAVORS["table4"], VARIANTS["mixit"], form=form).build()
    assert sum(param.numel() for _, param in named_weights(model)) == TABLE4["mixit"]


@pytest.mark.parametrize(
    ("flavor", "millions"),
    {"1b": 1235.8, "3b": 3212.7, "8b": 8030.3}.items(),
)
def test_sizes_of_the_flavors(flavor: str, millions: float) -> None:
    """Llama 3.2 1B and 3B, Llama 3.1 8B have 1.2358, 3.2127 and 8.0303 billion parameters."""
    assert counts_of("standard", FLAVORS[flavor]).trainable / 1e6 == pytest.approx(
        millions, abs=0.1
    )

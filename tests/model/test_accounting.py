import dataclasses

import pytest

from mixit_titan.model.accounting import (
    checkpoint_bytes,
    count,
    memory_per_rank,
    meta_model,
    speed_limit,
)
from mixit_titan.model.build import llama_config
from mixit_titan.model.shapes import FLAVORS, Shape
from mixit_titan.model.storage import Storage
from mixit_titan.model.variants import VARIANTS

# Table 4 of the paper, exactly.
TABLE4 = {"standard": 790400, "frozen_mlp": 394880, "frozen_qk": 724352, "mixit": 724736}


def counts_of(variant: str, shape: Shape, storage: Storage = "auto"):  # noqa: ANN201
    config = llama_config(shape, VARIANTS[variant], storage=storage)
    return count(config, meta_model(config), shape.seq_len)


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
    assert half.mixing == 2 * 32 * 32 * 2048**2  # whole on every rank
    assert half.optimizer == 8 * -(-mixit.trainable // 64)


def test_mixing_state_of_the_forms_at_length_8192() -> None:
    """32 layers of 32 heads: 137 GB of matrices in bfloat16, or one float32 number a row."""
    shape = dataclasses.replace(FLAVORS["8b"], seq_len=8192)
    expected = {"stored": 137_438_953_472, "sharded": 17_179_869_184, "generated": 33_554_432}
    for storage, size in expected.items():
        counts = counts_of("mixit", shape, storage)
        assert memory_per_rank(counts, ranks=8, dtype="bfloat16").mixing == size


@pytest.mark.parametrize("storage", ["stored", "sharded", "generated"])
def test_a_matrix_is_no_parameter(storage: Storage) -> None:
    assert counts_of("mixit", FLAVORS["table4"], storage).trainable == TABLE4["mixit"]


@pytest.mark.parametrize(
    ("flavor", "millions"),
    {"1b": 1235.8, "3b": 3212.7, "8b": 8030.3}.items(),
)
def test_sizes_of_the_flavours(flavor: str, millions: float) -> None:
    """Llama 3.2 1B and 3B, Llama 3.1 8B have 1.2358, 3.2127 and 8.0303 billion parameters."""
    assert counts_of("standard", FLAVORS[flavor]).trainable / 1e6 == pytest.approx(
        millions, abs=0.1
    )

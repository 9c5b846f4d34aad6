import pytest
from torchtitan.tools import utils

from mixit_titan.errors import ConfigError
from mixit_titan.model.communication import step_bytes
from mixit_titan.model.hardware import GPUS, find_gpu
from mixit_titan.model.memory import Step
from mixit_titan.model.packing import Packing
from mixit_titan.model.shapes import FLAVORS, Shape
from mixit_titan.model.speed import Seconds, step_seconds
from mixit_titan.model.variants import VARIANTS

H100 = GPUS["H100"]


def seconds(
    flavor: str,
    variant: str,
    step: Step,
    source: str | None = None,
    packing: Packing | None = None,
) -> Seconds:
    shape, kind = FLAVORS[flavor], VARIANTS[variant]
    received = step_bytes(shape, kind, step)
    settings = {"source": source, "attention": "flex", "packing": packing}
    return step_seconds(shape, kind, step, received, H100, **settings)


def test_peaks_are_those_that_the_trainer_takes_for_mfu() -> None:
    for name, gpu in GPUS.items():
        assert gpu.flops == utils.get_peak_flops(f"NVIDIA {name}")


def test_an_unknown_gpu_is_one_sentence() -> None:
    assert find_gpu("h100") is H100
    with pytest.raises(ConfigError, match="unknown GPU 'H101': did you mean 'H100'"):
        find_gpu("H101")


def test_products_of_160m_by_hand() -> None:
    n, f, vocab, tokens = 768, 2048, 128256, 32 * 2048
    layer, head = 4 * n * n + 3 * n * f, n * vocab
    step = Step(rows=32, length=2048)
    found = seconds("160m", "standard", step)
    assert found.products == pytest.approx(tokens * 6 * (12 * layer + head) / (0.45 * 989e12))
    # A layer's triangle: 2 m n forward, and 2.5 times as much backward.
    triangle = tokens * 12 * 2 * 2048 * n
    assert found.mixers == pytest.approx(triangle * (1 / 0.33 + 2.5 / 0.26) / 989e12)
    packing = Packing(600, 1.0)
    packed = seconds("160m", "standard", step, packing=packing)
    assert packed.mixers == pytest.approx(found.mixers * packing.visible(2048))
    assert packed.products == found.products
    frozen = seconds("160m", "frozen_mlp", step)
    saved = tokens * 2 * 12 * 3 * n * f / (0.45 * 989e12)
    assert found.products - frozen.products == pytest.approx(saved)


def test_recomputation_adds_forward_products() -> None:
    n, f, tokens = 768, 2048, 32 * 2048
    plain, selective, full = (
        seconds("160m", "standard", Step(rows=32, length=2048, recomputation=mode))
        for mode in ("none", "selective", "full")
    )
    again = 2 * tokens * 12 / (0.45 * 989e12)
    assert selective.products - plain.products == pytest.approx(again * (2 * n * n + n * f))
    assert full.products - plain.products == pytest.approx(again * (4 * n * n + 2 * n * f))
    eager = seconds(
        "160m", "standard", Step(rows=32, length=2048, recomputation="full", compiled=False)
    )
    assert eager.products - plain.products == pytest.approx(again * (4 * n * n + 3 * n * f))
    assert selective.mixers == plain.mixers < full.mixers


def test_links_within_a_node_and_across() -> None:
    def hidden(**split: int) -> tuple[float, int, int]:
        step = Step(rows=8, length=2048, **split)
        moved = step_bytes(FLAVORS["1b"], VARIANTS["standard"], step)
        return (
            seconds("1b", "standard", step).hidden,
            moved.weights + moved.gradients,
            moved.replicas,
        )

    took, sharded, _ = hidden(shards=8)
    assert took == pytest.approx(sharded / 450e9 / 0.7)
    took, sharded, _ = hidden(shards=8, context=2)  # 4 ranks of data, 2 of each row: one node
    assert took == pytest.approx(sharded / 450e9 / 0.7)
    took, sharded, _ = hidden(shards=64)  # 8 adapters of a node fetch a part each
    assert took == pytest.approx(sharded / (8 * 50e9) / 0.7)
    took, sharded, replicas = hidden(shards=8, replicas=8)  # one GPU of each node
    assert took == pytest.approx((sharded / 450e9 + replicas / 50e9) / 0.7)
    trained = 1235814400
    assert replicas == pytest.approx(2 * 7 / 8 * 4 * trained / 8, rel=1e-6)


def test_bytes_grow_with_microbatches_and_tensor_parallelism() -> None:
    shape = Shape(width=64, layers=3, heads=4, hidden=128, vocab=32, seq_len=16)
    variant = VARIANTS["standard"]
    once = step_bytes(shape, variant, Step(rows=2, length=16, shards=4))
    twice = step_bytes(shape, variant, Step(rows=2, length=16, shards=4, microbatches=2))
    assert twice.weights == 2 * once.weights and twice.gradients == 2 * once.gradients
    assert once.tensor == once.replicas == 0
    split = step_bytes(shape, variant, Step(rows=2, length=16, tensor=2))
    # Half of 32 tokens comes from the other rank, 8 times in each of 3 layers, in bfloat16.
    assert split.tensor == 3 * 8 * 16 * 64 * 2
    assert split.weights == split.gradients == 0

"""What only a GPU can show: `pytest tests/gpu --gpu` on a machine that has one."""

import dataclasses
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
from mixit_titan.kernels.documents import document_table
from mixit_titan.kernels.mixing import draw_words, mixing_matrix, row_means
from mixit_titan.model.build import llama_config
from mixit_titan.model.recipes import RECIPES, Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.metrics import read_metrics

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and --gpu")

SHAPE = Shape(width=128, layers=2, heads=2, hidden=256, vocab=320, seq_len=256, embedding_std=1.0)
GPUS = min(2, torch.cuda.device_count())


def losses(
    folder: Path, variant: str, *overrides: str, ranks: int = GPUS, native: bool = False
) -> list[float]:
    """Losses of 20 steps on all GPUs, by our command or by torchtitan's own entry point."""
    config = shipped_configs()[f"debug_{variant}"]
    settings = ["--dump_folder", str(folder), "--training.steps", "20", "--metrics.log_freq", "1"]
    if native:
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", "-m"]
        run += ["torchtitan.train", "--module", "mixit_titan", "--config", config.stem]
    else:
        run = ["-m", "mixit_titan", "train", str(config), "--nproc", str(ranks)]
    done = subprocess.run(
        [sys.executable, *run, *settings, *overrides], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return [line["loss"] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]


def test_the_generator_gives_the_same_integers_as_on_a_cpu() -> None:
    for here, there in zip(
        draw_words("gaussian", 3, 1, 2, torch.arange(300), 300),
        draw_words("gaussian", 3, 1, 2, torch.arange(300, device="cuda"), 300),
        strict=True,
    ):
        assert torch.equal(here, there.cpu())
    spec = RECIPES["official"].matrix_spec(0, SHAPE)
    here, there = (mixing_matrix(spec, 0, range(2), device=d) for d in ("cpu", "cuda"))
    torch.testing.assert_close(here, there.cpu(), atol=1e-6, rtol=0)


def test_a_matrix_that_was_made_on_the_cpu_serves_on_the_gpu() -> None:
    spec = RECIPES["official"].matrix_spec(0, SHAPE)
    cpu = torch.device("cpu")
    made = mixing_state("stored", spec, 0, range(2), dtype=torch.float32, device=cpu)
    v = torch.randn(2, 256, 2, 64, requires_grad=True)
    here = causal_mix(v, "stored", spec, made)
    moved = {key: value.cuda() for key, value in made.items()}
    there = causal_mix(v.cuda(), "stored", spec, moved)
    torch.testing.assert_close(here, there.cpu(), atol=1e-3, rtol=1e-3)
    (back_here,) = torch.autograd.grad(here.sum(), v)
    (back_there,) = torch.autograd.grad(there.sum(), v)
    torch.testing.assert_close(back_here, back_there, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("noise", ["gaussian", "sign"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [24, 64, 80, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_forms_of_the_product_agree(
    dtype: torch.dtype, width: int, causal: bool, packed: bool, noise: str
) -> None:
    recipe = dataclasses.replace(RECIPES["official"], causal=causal, noise=noise)
    spec = recipe.matrix_spec(0, dataclasses.replace(SHAPE, seq_len=700))
    torch.manual_seed(0)
    v, grad = (torch.randn(5, 600, 3, width, device="cuda", dtype=dtype)[:, :, 1:] for _ in "vg")
    v.requires_grad_()
    documents = None
    if packed:
        rows = ((100, 1, 339, 160), (600,), (1,) * 600, (128, 128, 344), (599, 1))
        positions = [torch.cat([torch.arange(size) for size in sizes]) for sizes in rows]
        documents = document_table(torch.stack(positions).cuda())
    results = []
    for form in ("reference", "stored", "generated"):
        device = torch.device("cuda")
        state = mixing_state(form, spec, 1, range(2), dtype=dtype, device=device)
        out = causal_mix(v, form, spec, state, documents)
        results.append((out.detach(), *torch.autograd.grad(out, v, grad)))
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    for other in results[1:]:
        for ours, expected in zip(other, results[0], strict=True):
            error = (ours.float() - expected.float()).abs().max() / expected.float().abs().max()
            assert error < tolerance


@pytest.mark.parametrize("noise", ["gaussian", "sign"])
def test_a_drawn_matrix_is_the_cpus(noise: str) -> None:
    """Normals by approximate functions and all: A times the identity."""
    spec = Recipe(std=1.0, noise=noise).matrix_spec(0, SHAPE)
    device = torch.device("cuda")
    state = mixing_state("generated", spec, 1, range(2), dtype=torch.float32, device=device)
    v = torch.eye(256, device="cuda").view(1, 256, 1, 256).expand(-1, -1, 2, -1)
    drawn = causal_mix(v, "generated", spec, state)[0].transpose(0, 1).cpu()
    assert float((drawn - mixing_matrix(spec, 1, range(2))).abs().max()) < 2e-5
    ours = state["means"].view(torch.float32).cpu()
    assert float((ours - row_means(spec, 1, range(2), torch.device("cpu"))).abs().max()) < 1e-5


def test_row_means_at_a_great_length_take_seconds() -> None:
    spec = RECIPES["paper"].matrix_spec(0, dataclasses.replace(SHAPE, seq_len=131072))
    torch.cuda.synchronize()
    start = time.monotonic()
    mixing_state("generated", spec, 0, range(2), dtype=torch.bfloat16, device=torch.device("cuda"))
    torch.cuda.synchronize()
    assert time.monotonic() - start < 60  # with the time to compile


@pytest.mark.parametrize("form", ["stored", "generated"])
def test_the_product_and_its_table_can_be_captured_in_a_graph(form: str) -> None:
    """And replayed with other documents than it was captured with."""
    spec = RECIPES["paper"].matrix_spec(0, SHAPE)
    device = torch.device("cuda")
    state = mixing_state(form, spec, 0, range(2), dtype=torch.float32, device=device)
    v = torch.randn(2, 256, 2, 64, device="cuda")
    halves = torch.cat([torch.arange(100), torch.arange(156)]).cuda().expand(2, -1).contiguous()
    others = torch.cat([torch.arange(1), torch.arange(255)]).cuda().expand(2, -1)
    expected = [causal_mix(v, form, spec, state, document_table(p)) for p in (halves, others)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = causal_mix(v, form, spec, state, document_table(halves))
    graph.replay()
    torch.testing.assert_close(captured, expected[0])
    halves.copy_(others)
    graph.replay()
    torch.testing.assert_close(captured, expected[1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_bf16_with_cuda_graphs_and_compile_follows_float32(tmp_path: Path, variant: str) -> None:
    plain = [
        "--training.mixed_precision_param",
        "float32",
        "--training.disable_cuda_graphs",
        "true",
    ]
    expected = losses(tmp_path / "float32", variant, *plain)
    graphs = losses(tmp_path / "bf16", variant)
    compiled = losses(tmp_path / "compiled", variant, "--compile.enable", "true")
    assert len(expected) == len(graphs) == len(compiled) == 20
    assert max(abs(a - b) for a, b in zip(graphs, expected, strict=True)) < 0.05
    assert max(abs(a - b) for a, b in zip(compiled, expected, strict=True)) < 0.05


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_ranks_over_nccl_give_the_losses_of_one(tmp_path: Path) -> None:
    exact = [
        "--training.mixed_precision_param",
        "float32",
        "--training.disable_cuda_graphs",
        "true",
    ]
    one = losses(tmp_path / "one", "mixit", *exact, ranks=1)
    two = losses(tmp_path / "two", "mixit", *exact, ranks=2)
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) < 1e-3


@pytest.mark.parametrize("packing", ["stream", "documents"])
def test_both_packings_train_with_every_attention(tmp_path: Path, packing: str) -> None:
    settings = ["--data.packing", packing, "--data.workers", "1", "--model.attention"]
    curves = [
        losses(tmp_path / name, "standard", *settings, name)
        for name in ("auto", "sdpa", "flex", "varlen")
    ]
    for curve in curves[1:]:
        assert max(abs(a - b) for a, b in zip(curve, curves[0], strict=True)) < 0.05


@pytest.mark.parametrize("variant", ["mixit", "frozen_qk"])
def test_torchtitans_own_entry_point(tmp_path: Path, variant: str) -> None:
    values = losses(tmp_path / "run", variant, native=True)
    assert values[-1] < values[0] - 0.5


def test_flex_attention_keeps_documents_apart_and_agrees_with_sdpa() -> None:
    models = {}
    for backend in ("flex", "sdpa"):
        config = llama_config(SHAPE, VARIANTS["standard"], attention=backend)
        with torch.device("cuda"):
            models[backend] = config.build()
        models[backend].init_states()
    tokens = torch.randint(0, 320, (2, 256), device="cuda")
    whole = torch.arange(256, device="cuda").expand(2, -1).contiguous()
    halves = torch.arange(128, device="cuda").repeat(2).expand(2, -1).contiguous()

    def flex(ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        masks = models["flex"].get_attention_masks(positions)
        with torch.no_grad():
            return models["flex"](ids, positions, masks)

    with torch.no_grad():
        expected, expected_halves = models["sdpa"](tokens), models["sdpa"](tokens, halves)
    torch.testing.assert_close(flex(tokens, whole), expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(flex(tokens, halves), expected_halves, atol=2e-3, rtol=0)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 320
    before, after = flex(tokens, halves), flex(changed, halves)
    assert torch.equal(before[:, 128:], after[:, 128:])
    assert not torch.equal(before[:, 5:128], after[:, 5:128])


def test_a_grouped_model_trains_in_bf16() -> None:
    shape = dataclasses.replace(SHAPE, heads=4, kv_heads=2, tied=True)
    with torch.device("cuda"):
        model = llama_config(shape, VARIANTS["standard"], attention="sdpa").build()
    model.init_states()
    model.to(torch.bfloat16)
    loss = model(torch.randint(0, 320, (2, 64), device="cuda")).float().square().mean()
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())

"""The mixing product compared to a plain product and to attention, on this machine.

    python benchmarks/mixing.py --out runs/bench_mixing

Everything that is compared runs in one process, interleaved, after a warm-up; each length has its
own process, because the allocator has a memory. Forward and backward count. Writes DIR/mixing.json:
`rows` (one per length: speedup_vs_matmul, speedup_vs_sdpa, gemm_share; on a CPU also
documents_gemm_share, of rows packed with documents, and bfloat16_speedup_vs_torch, against torch's
products of the same strips; with the interval from 5% to 95% of a bootstrap over the rounds),
`memory`, `model`, `drawing_seconds`, `generated_state_bytes`.

With AVX2 on a CPU that has AVX-512, torch and its libraries included:

    ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \\
        python benchmarks/mixing.py --out runs/bench_mixing_avx2

On a shared machine, `--clock cpu` counts the CPU time of all threads in place of wall time: it
excludes what others use, but also how well threads share the work.
"""

import json
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import torch
import torch.nn.functional as F
import tyro

from mixit_titan.device import has_gpu
from mixit_titan.files import write_text
from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
from mixit_titan.kernels.documents import document_table
from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix
from mixit_titan.model.accounting import count, memory_per_rank
from mixit_titan.model.build import llama_config
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS

BATCH, HEADS, WIDTH = 4, 8, 64
GEMM = 2048  # rows and columns of the plain product
WARM_UP = 3
BURST = 0.02
"""Seconds that a call is repeated for: a single short one measures the cache that it meets."""

CLOCK = "MIXIT_TITAN_BENCHMARK_CLOCK"
"""In the environment of the processes that measure."""

Times = dict[str, list[float]]


@dataclass
class Arguments:
    """Measure the mixing product, and print and write the ratios."""

    out: Path
    lengths: tuple[int, ...] = (256, 1024, 2048)
    rounds: int = 20
    clock: Literal["wall", "cpu"] = "wall"


def main(args: Arguments) -> None:
    """Measure all lengths and write mixing.json."""
    os.environ[CLOCK] = args.clock
    if args.clock == "cpu":  # threads that wait must not count
        os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    rows = [_fresh(measure_length, length, args.rounds) for length in args.lengths]
    result = {
        "device": torch.cuda.get_device_name() if has_gpu() else cpu_name(),
        "threads": torch.get_num_threads(),
        "clock": args.clock,
        "rows": rows,
        "memory": _fresh(measure_memory, 2048),
        "model": _fresh(measure_model, args.rounds),
        "drawing_seconds": _fresh(measure_drawing),
        "generated_state_bytes": generated_state_bytes(),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    write_text(args.out / "mixing.json", json.dumps(result, indent=2) + "\n")
    print(_table(result))


def cpu_name() -> str:
    """What it is, and what torch makes use of."""
    name = torch.cpu.get_capabilities().get("cpu_name", "CPU")
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def _fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure_length(length: int, rounds: int) -> dict[str, Any]:
    """Time all products at one length."""
    device = torch.device("cuda" if has_gpu() else "cpu")
    dtype = torch.bfloat16 if has_gpu() else torch.float32
    spec = _spec(length)
    state = mixing_state("stored", spec, 0, range(HEADS), dtype=dtype, device=device)
    a = mixing_matrix(spec, 0, range(HEADS), device=device).to(dtype)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype, requires_grad=True)

    v = leaf(BATCH, length, HEADS, WIDTH)
    q, k, u = (leaf(BATCH, HEADS, length, WIDTH) for _ in range(3))
    left, right = (leaf(GEMM, GEMM).detach() for _ in range(2))

    def both(forward: Callable[[], torch.Tensor], *inputs: torch.Tensor) -> Callable[[], object]:
        grad = torch.randn_like(forward())
        return lambda: torch.autograd.grad(forward(), inputs, grad)

    calls = {
        "ours": both(lambda: causal_mix(v, "stored", spec, state), v),
        "matmul": both(lambda: torch.matmul(a, u), u),
        "sdpa": both(lambda: F.scaled_dot_product_attention(q, k, u, is_causal=True), q, k, u),
        "gemm": lambda: left @ right,
    }
    triangle = 2 * BATCH * HEADS * WIDTH * length * (length + 1)  # FLOPs, forward and backward
    ratios = {
        "speedup_vs_matmul": lambda t: t["matmul"] / t["ours"],
        "speedup_vs_sdpa": lambda t: t["sdpa"] / t["ours"],
        "gemm_share": lambda t: triangle / t["ours"] / (2 * GEMM**3 / t["gemm"]),
    }
    if not has_gpu():
        positions = packed_positions(length)
        seen = int((positions + 1).sum())
        packed = 4 * HEADS * WIDTH * seen
        documents = document_table(positions)
        calls["documents"] = both(lambda: causal_mix(v, "stored", spec, state, documents), v)
        ratios["documents_gemm_share"] = lambda t: (
            packed / t["documents"] / (2 * GEMM**3 / t["gemm"])
        )
        half = mixing_state("stored", spec, 0, range(HEADS), dtype=torch.bfloat16, device=device)
        w = v.detach().bfloat16().requires_grad_()
        bfloat16 = both(lambda: causal_mix(w, "stored", spec, half), w)
        calls |= {"bfloat16": bfloat16, "torch_bfloat16": by_torch(bfloat16)}
        ratios["bfloat16_speedup_vs_torch"] = lambda t: t["torch_bfloat16"] / t["bfloat16"]
    times, busy = interleaved(calls, rounds)
    row: dict[str, Any] = {"length": length}
    for name, ratio in ratios.items():
        row[name], row[f"{name}_interval"] = with_interval(ratio, times)
    milliseconds = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    return row | {"milliseconds": milliseconds, "cpu_over_wall": busy}


def packed_positions(length: int) -> torch.Tensor:
    """Rows of documents of random lengths, a quarter of a row on average."""
    generator = torch.Generator().manual_seed(0)
    begins = torch.rand(BATCH, length, generator=generator) < 4 / length
    begins[:, 0] = True
    index = torch.arange(length).expand(BATCH, -1)
    return index - torch.where(begins, index, 0).cummax(1).values


def by_torch(call: Callable[[], object]) -> Callable[[], object]:
    """The call without the product in C."""

    def without() -> object:
        with mock.patch("mixit_titan.kernels.stored.compiled_mix", lambda: None):
            return call()

    return without


def measure_memory(length: int) -> dict[str, float]:
    """Peak of what one product, forward and backward, allocates, over the size of v and out."""
    device = torch.device("cuda" if has_gpu() else "cpu")
    spec = _spec(length)
    state = mixing_state("stored", spec, 0, range(HEADS), dtype=torch.float32, device=device)
    v = torch.randn(BATCH, length, HEADS, WIDTH, device=device, requires_grad=True)
    grad = torch.randn_like(v)

    def peak(call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, int]:
        with torch.profiler.profile(profile_memory=True) as profiler:
            result = call()
        level = highest = 0
        for event in profiler.profiler.kineto_results.events():
            if event.name() == "[memory]":
                level += event.nbytes()
                highest = max(highest, level)
        return result, highest

    out, forward = peak(lambda: causal_mix(v, "stored", spec, state))
    _, backward = peak(lambda: torch.autograd.grad(out, v, grad)[0])
    both = 2 * v.numel() * v.element_size()
    return {"forward": forward / both, "backward": backward / both}


def measure_model(rounds: int) -> dict[str, Any]:
    """A training step of mixit against one of standard."""
    device = torch.device("cuda" if has_gpu() else "cpu")
    shape = Shape(width=256, layers=4, heads=8, hidden=1024, vocab=2048, seq_len=1024)
    tokens = torch.randint(0, shape.vocab, (2, shape.seq_len), device=device)

    def trainer(variant: str) -> Callable[[], None]:
        with torch.device(device):
            model = llama_config(shape, VARIANTS[variant], attention="sdpa").build()
        model.init_states()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def step() -> None:
            logits = model(tokens)
            F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    names = ("standard", "mixit")
    times, busy = interleaved({name: trainer(name) for name in names}, rounds)
    ratio, interval = with_interval(lambda t: t["standard"] / t["mixit"], times)
    return {
        "mixit_over_standard": ratio,
        "mixit_over_standard_interval": interval,
        "tokens_per_s": {n: tokens.numel() / statistics.median(times[n]) for n in names},
        "cpu_over_wall": busy,
    }


def measure_drawing() -> float:
    """Seconds to draw the matrices of the paper's model: 12 layers, 8 heads, length 256."""
    device = torch.device("cuda" if has_gpu() else "cpu")
    start = time.perf_counter()
    for layer in range(12):
        mixing_matrix(_spec(256), layer, range(8), device=device)
    _wait()
    return time.perf_counter() - start


def generated_state_bytes() -> int:
    """Of the generated form: 32 layers of 32 heads at length 8192."""
    shape = Shape(width=4096, layers=32, heads=32, hidden=14336, vocab=128256, seq_len=8192)
    counts = count(shape, VARIANTS["mixit"], form="generated")
    return memory_per_rank(counts, ranks=1, dtype="bfloat16").mixing


def interleaved(calls: dict[str, Callable[[], object]], rounds: int) -> tuple[Times, float]:
    """Seconds of each call in each round (of a burst of them, where it is short), and CPU time over
    wall time: below the number of threads, the machine was not ours alone."""
    times: Times = {name: [] for name in calls}
    repeats = {name: 1 + int(BURST / _seconds(call)[0]) for name, call in calls.items()}
    generator = random.Random(0)
    wall = cpu = 0.0
    for turn in range(WARM_UP + rounds):
        # In another order each time: what came before has left its data in the cache.
        for name in generator.sample(list(calls), len(calls)):
            passed, busy = _seconds(calls[name], repeats[name])
            if turn >= WARM_UP:
                counted = busy if os.environ.get(CLOCK) == "cpu" else passed
                times[name].append(counted / repeats[name])
                wall, cpu = wall + passed, cpu + busy
    return times, cpu / wall


def _seconds(call: Callable[[], object], repeats: int = 2) -> tuple[float, float]:
    """Of wall time and CPU time."""
    start, start_cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call()
    _wait()
    return time.perf_counter() - start, time.process_time() - start_cpu


def with_interval(
    ratio: Callable[[dict[str, float]], float], times: Times
) -> tuple[float, list[float]]:
    """A ratio of medians, and its interval from 5% to 95% by bootstrap over the rounds."""
    generator = random.Random(0)
    rounds = range(len(next(iter(times.values()))))

    def of(chosen: list[int]) -> float:
        return ratio({n: statistics.median(t[i] for i in chosen) for n, t in times.items()})

    drawn = sorted(of(generator.choices(rounds, k=len(rounds))) for _ in range(500))
    return of(list(rounds)), [drawn[25], drawn[-26]]


def _spec(length: int) -> MatrixSpec:
    std = (HEADS * WIDTH * length) ** -0.5
    return MatrixSpec(
        seed=0,
        length=length,
        std_low=std,
        std_high=std,
        identity=True,
        sink_head=False,
        causal=True,
    )


def _wait() -> None:
    if has_gpu():
        torch.cuda.synchronize()


def _table(result: dict[str, Any]) -> str:
    def cell(row: dict[str, Any], key: str) -> str:
        low, high = row[f"{key}_interval"]
        return f"{row[key]:.2f} ({low:.2f} to {high:.2f})"

    columns = {
        "speedup_vs_matmul": "against matmul",
        "speedup_vs_sdpa": "against attention",
        "gemm_share": "share of a plain product",
        "documents_gemm_share": "the same, documents",
        "bfloat16_speedup_vs_torch": "bfloat16 against torch",
    }
    keys = [key for key in columns if key in result["rows"][0]]
    busy = ", ".join(f"{row['cpu_over_wall']:.2f}" for row in result["rows"])
    lines = [
        f"{result['device']}, {result['threads']} threads, {result['clock']} time "
        f"(CPU over wall time {busy})",
        "",
        "| length | " + " | ".join(columns[key] for key in keys) + " |",
        "|---" * (1 + len(keys)) + "|",
    ]
    for row in result["rows"]:
        lines.append(f"| {row['length']} | " + " | ".join(cell(row, key) for key in keys) + " |")
    memory, model = result["memory"], result["model"]
    return "\n".join(
        [
            *lines,
            "",
            f"peak memory over v and out: forward {memory['forward']:.2f}, "
            f"backward {memory['backward']:.2f}",
            f"a model's training step, mixit to standard: {cell(model, 'mixit_over_standard')}",
            f"drawing 12 x 8 x 256 x 256: {result['drawing_seconds']:.2f} s",
            f"generated state, 32 x 32 at 8192: {result['generated_state_bytes'] / 1e6:.1f} MB",
        ]
    )


if __name__ == "__main__":
    main(tyro.cli(Arguments))

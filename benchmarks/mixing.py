"""The mixing product against a plain product and against attention, on whatever machine this is.

    python benchmarks/mixing.py --out runs/bench_mixing

All that is compared runs in one process, interleaved, after warming up; each length has a process
of its own, because the allocator remembers. Forward and backward count. Writes DIR/mixing.json:
`rows` (a length each: speedup_vs_matmul, speedup_vs_sdpa, gemm_share, with the interval from 5% to
95% of a bootstrap over the rounds), `memory`, `model`, `drawing_seconds`, `generated_state_bytes`.
"""

import json
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import tyro

from mixit_titan.device import has_gpu
from mixit_titan.files import write_text
from mixit_titan.kernels.causal_mix import causal_mix, mixing_state
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

Times = dict[str, list[float]]


@dataclass
class Arguments:
    """Measure the mixing product, and print and write the ratios."""

    out: Path
    lengths: tuple[int, ...] = (256, 1024, 2048)
    rounds: int = 20


def main(args: Arguments) -> None:
    rows = [_fresh(measure_length, length, args.rounds) for length in args.lengths]
    result = {
        "device": torch.cuda.get_device_name() if has_gpu() else "cpu",
        "threads": torch.get_num_threads(),
        "rows": rows,
        "memory": _fresh(measure_memory, 2048),
        "model": _fresh(measure_model, args.rounds),
        "drawing_seconds": _fresh(measure_drawing),
        "generated_state_bytes": generated_state_bytes(),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    write_text(args.out / "mixing.json", json.dumps(result, indent=2) + "\n")
    print(_table(result))


def _fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure_length(length: int, rounds: int) -> dict[str, Any]:
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

    times, busy = interleaved(
        {
            "ours": both(lambda: causal_mix(v, "stored", spec, state), v),
            "matmul": both(lambda: torch.matmul(a, u), u),
            "sdpa": both(lambda: F.scaled_dot_product_attention(q, k, u, is_causal=True), q, k, u),
            "gemm": lambda: left @ right,
        },
        rounds,
    )
    triangle = 2 * BATCH * HEADS * WIDTH * length * (length + 1)  # FLOPs, forward and backward
    ratios = {
        "speedup_vs_matmul": lambda t: t["matmul"] / t["ours"],
        "speedup_vs_sdpa": lambda t: t["sdpa"] / t["ours"],
        "gemm_share": lambda t: triangle / t["ours"] / (2 * GEMM**3 / t["gemm"]),
    }
    row: dict[str, Any] = {"length": length}
    for name, ratio in ratios.items():
        row[name], row[f"{name}_interval"] = with_interval(ratio, times)
    milliseconds = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    return row | {"milliseconds": milliseconds, "cpu_over_wall": busy}


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
    repeats = {name: 1 + int(BURST / _seconds(call)) for name, call in calls.items()}
    generator = random.Random(0)
    wall = cpu = 0.0
    for turn in range(WARM_UP + rounds):
        # In another order each time: what came before has left its data in the cache.
        for name in generator.sample(list(calls), len(calls)):
            start_cpu = time.process_time()
            seconds = _seconds(calls[name], repeats[name])
            if turn >= WARM_UP:
                times[name].append(seconds / repeats[name])
                wall, cpu = wall + seconds, cpu + time.process_time() - start_cpu
    return times, cpu / wall


def _seconds(call: Callable[[], object], repeats: int = 2) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    _wait()
    return time.perf_counter() - start


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

    lines = [
        "| length | against matmul | against attention | share of a plain product |",
        "|---|---|---|---|",
    ]
    keys = ("speedup_vs_matmul", "speedup_vs_sdpa", "gemm_share")
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

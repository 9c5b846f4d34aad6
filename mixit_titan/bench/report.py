"""Turns the times of a run into the rows of its table, and prints the tables."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from mixit_titan.bench.measure import Times
from mixit_titan.bench.memory import Peak
from mixit_titan.bench.settings import Point
from mixit_titan.bench.steps import PHASES, PLAIN
from mixit_titan.model.accounting import speed_limit
from mixit_titan.tables import screen_table

_RESAMPLES = 2000
_BUSY = 0.9
"""If fewer than this fraction of the threads are busy, wall time says more about the machine than
about the code."""


def rows(
    point: Point,
    times: Mapping[str, Times],
    peaks: Mapping[str, Peak],
    *,
    peak_flops: float = math.nan,
) -> list[dict[str, Any]]:
    """Return one row per variant. `times` are those of the slowest rank, `peak_flops` that of one
    device."""
    standard = times["standard"].steps
    return [
        {
            "variant": name,
            **_speed(point, taken),
            **_ratio(standard, taken.steps),
            **_limit(name, point, np.median(standard) / np.median(taken.steps)),
            **_flops(name, point, float(np.median(taken.steps)), peak_flops),
            **_cpu(times["standard"], taken),
            "peak_memory_bytes": peaks[name].accumulating,
            "peak_memory_one_batch_bytes": peaks[name].one_batch,
            "compile_seconds": taken.compile if point.compile else None,
            "round_seconds": taken.steps,
        }
        for name, taken in times.items()
    ]


def ratio_interval(base: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the 95% interval of median(base) / median(other), by bootstrap over the rounds that
    both took part in."""
    draw = np.random.default_rng(0).integers(len(base), size=(_RESAMPLES, len(base)))
    ratios = np.median(np.array(base)[draw], axis=1) / np.median(np.array(other)[draw], axis=1)
    return [float(q) for q in np.quantile(ratios, [0.025, 0.975])]


def _speed(point: Point, taken: Times) -> dict[str, Any]:
    """Return the speed of all ranks together."""
    tokens, samples = (each * point.data_parallel for each in (point.tokens, point.batch))
    # A slow step is a low speed: the first quartile of one is the third of the other.
    slow, middle, fast = (float(np.quantile(taken.steps, q)) for q in (0.75, 0.5, 0.25))
    return {
        "tokens_per_s": tokens / middle,
        "tokens_per_s_quartiles": [tokens / slow, tokens / fast],
        "samples_per_s": samples / middle,
        "samples_per_s_quartiles": [samples / slow, samples / fast],
        "step_seconds": middle,
        "phase_seconds": {
            phase: float(np.median([phases[phase] for phases in taken.phases])) for phase in PHASES
        },
    }


def _ratio(standard: Sequence[float], steps: Sequence[float]) -> dict[str, Any]:
    return {
        "ratio": float(np.median(standard) / np.median(steps)),
        "ratio_interval": ratio_interval(standard, steps),
    }


def _limit(name: str, point: Point, ratio: float) -> dict[str, Any]:
    """Return the FLOP ratio, which bench.json has as `limit`."""
    limit = 1.0
    if name != PLAIN:
        rows = dataclasses.replace(point.shape, seq_len=point.seq_len)
        limit = speed_limit(rows, point.stack(name))
    return {"limit": limit, "share_of_limit": float(ratio / limit)}


def _flops(name: str, point: Point, step: float, peak_flops: float) -> dict[str, Any]:
    """Count useful FLOPs, without those that recompute activations. Rows are counted as one
    document each."""
    counts = point.counts("standard" if name == PLAIN else name)
    tokens = point.tokens * point.data_parallel / point.ranks
    per_second = counts.flops_per_token * tokens / step
    mfu = None if math.isnan(peak_flops) else per_second / peak_flops
    return {"tflops_per_rank": per_second / 1e12, "mfu": mfu}


def _cpu(standard: Times, taken: Times) -> dict[str, Any]:
    """Return the speed by CPU time, which holds even when other processes use the machine."""
    cpu, wall = float(np.median(taken.cpu)), float(np.median(taken.steps))
    return {
        "cpu_seconds": cpu,
        "cpu_seconds_per_second": cpu / wall,
        "ratio_by_cpu_time": float(np.median(standard.cpu) / cpu) if cpu else None,
    }


def title(settings: dict[str, Any]) -> str:
    """Describe the settings of a bench.json, including one with fewer keys."""
    shape = settings["shape"]
    length = settings.get("seq_len", shape["seq_len"])
    return (
        f"width {shape['width']}, {shape['layers']} layers, {shape['heads']} heads, vocabulary "
        f"{shape['vocab']}, length {length}, batch {settings['batch']}, "
        f"{', '.join(path_words(settings))}"
    )


def path_words(settings: dict[str, Any]) -> list[str]:
    """Describe how a step is run, leaving out what is usual."""
    words = [settings["dtype"], "compiled" if settings["compile"] else "eager"]
    if settings.get("documents"):
        words.append("documents")
    if settings.get("graphs"):
        words.append("CUDA graphs")
    if settings.get("chunks", 1) > 1:
        words.append(f"loss in {settings['chunks']} chunks")
    if settings.get("microbatches", 1) > 1:
        words.append(f"{settings['microbatches']} microbatches")
    if settings["ac"] != "none":
        words.append(f"{settings['ac']} recomputation")
    if settings["ranks"] > 1:
        words.append(f"{settings['ranks']} ranks")
    if settings["frozen"] != "sharded":
        words.append(f"frozen weights {settings['frozen']}")
    return words


def tables(found: dict[str, Any]) -> list[Table]:
    """Return the tables of speed and FLOP ratio, of time and memory, and of what only several ranks
    have."""
    shown = [_speed_table(found), _step_table(found)]
    return [*shown, _rank_table(found)] if found["settings"]["ranks"] > 1 else shown


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    style = {"title_justify": "left", "box": box.SIMPLE_HEAD}
    return screen_table(title, header, rows, no_wrap=True, **style)


def _speed_table(found: dict[str, Any]) -> Table:
    header = ("variant", "tokens/s", "quartiles", "to standard", "95%", "FLOP ratio", "% of ratio")
    rows = [
        (
            row["variant"],
            f"{row['tokens_per_s']:,.0f}",
            "{:,.0f} to {:,.0f}".format(*row["tokens_per_s_quartiles"]),
            f"{row['ratio']:.3f}x",
            "{:.3f} to {:.3f}".format(*row["ratio_interval"]),
            f"{row['limit']:.3f}x",
            f"{row['share_of_limit']:.1%}",
        )
        for row in found["variants"]
    ]
    return _table(f"Measured: {title(found['settings'])}", header, rows)


def _step_table(found: dict[str, Any]) -> Table:
    known = any(row["mfu"] is not None for row in found["variants"])
    header = (
        "variant",
        *(phase.replace("_", " + ") for phase in PHASES),
        "MiB",
        "samples/s",
        "TFLOPS",
        *(["MFU"] if known else []),
    )
    rows = [
        (
            row["variant"],
            *(f"{row['phase_seconds'][phase]:.4f}" for phase in PHASES),
            f"{row['peak_memory_bytes'] / 2**20:,.1f}",
            f"{row['samples_per_s']:,.2f}",
            f"{row['tflops_per_rank']:.3f}",
            *([f"{row['mfu']:.1%}"] if known else []),
        )
        for row in found["variants"]
    ]
    return _table("Seconds per step, and peak memory", header, rows)


def _rank_table(found: dict[str, Any]) -> Table:
    header = ("variant", "tokens/s per rank", "one alone", "efficiency", "weights", "gradients")
    rows = []
    for row in found["variants"]:
        speeds, moved = row["tokens_per_s_per_rank"], row.get("communicated_bytes_per_step")
        alone = ["", ""]
        if "tokens_per_s_alone" in row:
            alone = [f"{row['tokens_per_s_alone']:,.0f}", f"{row['scaling_efficiency']:.1%}"]
        each = f"{min(speeds):,.0f} to {max(speeds):,.0f}"
        sizes = ["", ""]
        if moved is not None:
            sizes = [f"{moved[kind] / 2**20:,.2f} MiB" for kind in ("weights", "gradients")]
        rows.append((row["variant"], each, *alone, *sizes))
    return _table("Each rank, and what it receives from the others per step", header, rows)


def remarks(found: dict[str, Any]) -> list[str]:
    """Return the remarks that a reader needs beside the tables."""
    settings, said = found["settings"], []
    said.append(
        f"attention: {settings['attention']}; mixing matrices: {settings['form']}; documents "
        f"packed: {_word(settings['documents'])}; CUDA graphs: {_word(settings['graphs'])}"
    )
    if not found["interleaved"]:
        said.append(
            "the variants were measured one after another, so a disturbance may have affected "
            "only some of them"
        )
    if settings["compile"]:
        compiling = [f"{r['variant']} {r['compile_seconds']:.1f} s" for r in found["variants"]]
        said.append(f"compilation, not included in the times: {', '.join(compiling)}")
    if "standard_to_plain" in found:
        ratio = found["standard_to_plain"]
        said.append(
            "standard over the plain PyTorch Llama: {:.3f}x ({:.3f} to {:.3f})".format(
                ratio["ratio"], *ratio["ratio_interval"]
            )
        )
    threads = found["environment"]["threads"]
    busy = min(row["cpu_seconds_per_second"] for row in found["variants"])
    if "CUDA" not in found["environment"]["clock"] and busy < _BUSY * threads:
        by_cpu = [f"{r['variant']} {r['ratio_by_cpu_time']:.3f}x" for r in found["variants"]]
        said.append(
            f"only {busy:.2f} of {threads} threads were busy: either other processes used the "
            f"machine, or the step is too small to measure. By CPU time: {', '.join(by_cpu)}"
        )
    return said


def _word(switch: bool) -> str:
    return "yes" if switch else "no"

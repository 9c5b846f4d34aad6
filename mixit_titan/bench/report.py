"""The tables on the screen."""

from typing import Any

from rich import box
from rich.table import Table

from mixit_titan.bench.steps import PHASES

_BUSY = 0.9
"""Below this share of the threads at work, wall time says more about the machine than about us."""


def title(settings: dict[str, Any]) -> str:
    shape = settings["shape"]
    how = [settings["dtype"], "compiled" if settings["compile"] else "eager"]
    if settings["ac"] != "none":
        how.append(f"{settings['ac']} checkpointing")
    if settings["ranks"] > 1:
        how.append(f"{settings['ranks']} ranks")
    return (
        f"width {shape['width']}, {shape['layers']} layers, {shape['heads']} heads, vocabulary "
        f"{shape['vocab']}, length {shape['seq_len']}, batch {settings['batch']}, {', '.join(how)}"
    )


def tables(found: dict[str, Any]) -> list[Table]:
    """Speed beside its limit; where the time and the memory go; and what only many ranks have."""
    shown = [_speed(found), _steps(found)]
    return [*shown, _ranks(found)] if found["settings"]["ranks"] > 1 else shown


def _table(heading: str, *columns: str) -> Table:
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD)
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 else "right", no_wrap=True)
    return table


def _speed(found: dict[str, Any]) -> Table:
    columns = ("variant", "tokens/s", "quartiles", "to standard", "95%", "limit", "of limit")
    table = _table(title(found["settings"]), *columns)
    for row in found["variants"]:
        table.add_row(
            row["variant"],
            f"{row['tokens_per_s']:,.0f}",
            "{:,.0f} to {:,.0f}".format(*row["tokens_per_s_quartiles"]),
            f"{row['ratio']:.3f}x",
            "{:.3f} to {:.3f}".format(*row["ratio_interval"]),
            f"{row['limit']:.3f}x",
            f"{row['share_of_limit']:.1%}",
        )
    return table


def _steps(found: dict[str, Any]) -> Table:
    heading = "seconds of a step, and the peak of its memory"
    known = any(row["mfu"] is not None for row in found["variants"])
    last = ["MiB", "samples/s", "TFLOPS", *(["MFU"] if known else [])]
    table = _table(heading, "variant", *PHASES, *last)
    for row in found["variants"]:
        table.add_row(
            row["variant"],
            *(f"{row['phase_seconds'][phase]:.4f}" for phase in PHASES),
            f"{row['peak_memory_bytes'] / 2**20:,.1f}",
            f"{row['samples_per_s']:,.2f}",
            f"{row['tflops_per_rank']:.3f}",
            *([f"{row['mfu']:.1%}"] if known else []),
        )
    return table


def _ranks(found: dict[str, Any]) -> Table:
    columns = ["variant", "tokens/s of each", "of one alone", "efficiency", "weights", "gradients"]
    table = _table("each rank, and what it receives from the others in a step", *columns)
    for row in found["variants"]:
        speeds, moved = row["tokens_per_s_per_rank"], row["communicated_bytes_per_step"]
        alone = ["", ""]
        if "tokens_per_s_alone" in row:
            alone = [f"{row['tokens_per_s_alone']:,.0f}", f"{row['scaling_efficiency']:.1%}"]
        table.add_row(
            row["variant"],
            f"{min(speeds):,.0f} to {max(speeds):,.0f}",
            *alone,
            *(f"{moved[kind] / 2**20:,.2f} MiB" for kind in ("weights", "gradients")),
        )
    return table


def remarks(found: dict[str, Any]) -> list[str]:
    """What a reader must know beside the table."""
    said = []
    if found["settings"]["compile"]:
        compiling = [f"{r['variant']} {r['compile_seconds']:.1f} s" for r in found["variants"]]
        said.append(f"compilation, not in the times: {', '.join(compiling)}")
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
            f"only {busy:.2f} of {threads} threads were at work: other processes took part of the "
            f"machine, or a step is too small to measure. By CPU time: {', '.join(by_cpu)}"
        )
    return said

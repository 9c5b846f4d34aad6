"""The table on the screen."""

from typing import Any

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


def table(found: dict[str, Any]) -> Table:
    gpu_peak_known = any(row["mfu"] is not None for row in found["variants"])
    columns = ["variant", "tokens/s", "quartiles", "samples/s", *PHASES, "peak memory", "TFLOPS"]
    columns += ["MFU"] if gpu_peak_known else []
    columns += ["to standard", "95%", "limit", "of limit"]
    shown = Table(title=title(found["settings"]))
    for n, column in enumerate(columns):
        shown.add_column(column, justify="left" if n == 0 else "right", no_wrap=True)
    for row in found["variants"]:
        shown.add_row(*_cells(row, gpu_peak_known))
    return shown


def _cells(row: dict[str, Any], gpu_peak_known: bool) -> list[str]:
    low, high = row["tokens_per_s_quartiles"]
    return [
        row["variant"],
        f"{row['tokens_per_s']:,.0f}",
        f"{low:,.0f} to {high:,.0f}",
        f"{row['samples_per_s']:,.2f}",
        *(f"{row['phase_seconds'][phase]:.3f} s" for phase in PHASES),
        f"{row['peak_memory_bytes'] / 2**20:,.0f} MiB",
        f"{row['tflops_per_rank']:.3f}",
        *([f"{row['mfu']:.1%}"] if gpu_peak_known else []),
        f"{row['ratio']:.3f}x",
        "{:.3f} to {:.3f}".format(*row["ratio_interval"]),
        f"{row['limit']:.3f}x",
        f"{row['share_of_limit']:.1%}",
    ]


def ranks_table(found: dict[str, Any]) -> Table:
    """What only many ranks have."""
    shown = Table(title="each rank, and what it receives from the others in a step")
    columns = ["variant", "tokens/s of each rank", "of one alone", "efficiency", "weights"]
    for n, column in enumerate([*columns, "gradients"]):
        shown.add_column(column, justify="left" if n == 0 else "right", no_wrap=True)
    for row in found["variants"]:
        speeds = row["tokens_per_s_per_rank"]
        moved = row["communicated_bytes_per_step"]
        alone = ["", ""]
        if "tokens_per_s_alone" in row:
            alone = [f"{row['tokens_per_s_alone']:,.0f}", f"{row['scaling_efficiency']:.1%}"]
        shown.add_row(
            row["variant"],
            f"{min(speeds):,.0f} to {max(speeds):,.0f}",
            *alone,
            *(f"{moved[kind] / 2**20:,.1f} MiB" for kind in ("weights", "gradients")),
        )
    return shown


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

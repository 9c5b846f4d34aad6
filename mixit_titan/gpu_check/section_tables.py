"""The table of each section, made from the figures of its checks."""

from collections.abc import Callable, Sequence
from typing import Any

from mixit_titan.gpu_check.check import Check
from mixit_titan.gpu_check.parity import TOLERANCE
from mixit_titan.gpu_check.scale import Row, Scale
from mixit_titan.gpu_check.times import MIXERS, arithmetic, modeled
from mixit_titan.model.hardware import find_gpu
from mixit_titan.tables import markdown_table

Checks = Sequence[Check]
Machine = dict[str, Any]


def section_table(section: str, scale: Scale, machine: Machine, checks: Checks) -> str:
    """Return the table of a section as Markdown."""
    table = _TABLES.get(section, lambda scale, machine, checks: _lines(checks))
    return table(scale, machine, checks)


def _lines(checks: Checks) -> str:
    """Return one line per check; those skipped for the same reason share a line."""
    rows: dict[Any, list[Check]] = {}
    for check in checks:
        key = check.said if check.state == "skipped" else check.name
        rows.setdefault((check.state, key), []).append(check)
    lines = [
        (
            first.name + (f" and {len(others)} more" if others else ""),
            _state(first),
            first.said,
        )
        for first, *others in rows.values()
    ]
    return markdown_table(("check", "", "found"), lines)


def _state(check: Check) -> str:
    return "**FAIL**" if check.state == "fail" else check.state


def _not_passed(checks: Checks) -> str:
    """Say why, below a table that only has room for figures."""
    others = [check for check in checks if check.state != "pass"]
    return f"\n{_lines(others)}" if others else ""


def _doctor(scale: Scale, machine: Machine, checks: Checks) -> str:
    """Return all that doctor says, which describes the environment; problems come first."""
    lines = [
        (line["state"], line["name"], line["fact"], line["advice"])
        for check in checks
        for line in check.figures.get("checks", [])
    ]
    lines.sort(key=lambda line: ("wrong", "warning", "ok").index(line[0]))
    if not lines:
        return _lines(checks)
    return f"{_lines(checks)}\n" + markdown_table(("", "check", "found", "do"), lines)


def _parity(scale: Scale, machine: Machine, checks: Checks) -> str:
    """Return the largest error over all forms, one-document rows and packed ones, forward and
    backward."""
    untold = [check for check in checks if check.state == "skipped" or not check.figures]
    checks = [check for check in checks if check.figures]
    if not checks:
        return _lines(untold)
    shapes = dict.fromkeys(check.figures["shape"] for check in checks)
    lengths = sorted({check.figures["length"] for check in checks})

    def cell(shape: str, length: int) -> str:
        figures = ("shape", "length")
        these = [c for c in checks if tuple(map(c.figures.get, figures)) == (shape, length)]
        for state in ("fail", "skipped"):
            forms = [check.figures["form"] for check in these if check.state == state]
            if forms:
                return f"{'**FAIL**' if state == 'fail' else state} ({', '.join(forms)})"
        return f"{max((check.figures['error'] for check in these), default=0):.4f}"

    forms = ", ".join(dict.fromkeys(check.figures["form"] for check in checks))
    said = (
        "Relative error of the norm against the formula in float32, the worst over all forms "
        f"({forms}), over one-document and packed rows, forward and backward. A figure is "
        f"a pass: it is below {TOLERANCE['norm']}, and the largest error is below "
        f"{TOLERANCE['largest']}."
    )
    rows = [(shape, *(cell(shape, length) for length in lengths)) for shape in shapes]
    header = ("flavor (heads x width)", *(f"length {length:,}" for length in lengths))
    return f"{said}\n\n{markdown_table(header, rows, left=1)}{_not_passed(untold)}"


def _times(scale: Scale, machine: Machine, checks: Checks) -> str:
    gpu = find_gpu(scale.gpu)
    peak = machine.get("peak_flops")
    by_name = {(c.figures.get("row"), c.figures.get("mixer")): c for c in checks}

    def cell(row: Row, name: str) -> str:
        mixer, documents = MIXERS[name]
        check = by_name.get((str(row), name))
        taken = "" if check is None else check.figures.get("milliseconds", "")
        said = f"{taken:.3f}" if taken else ""
        if check is not None and check.state == "fail":
            said = "**FAIL**"
        if documents or scale.rehearsal:  # the speed of a toy is not modeled
            return said
        return f"{said} ({modeled(row, mixer, gpu):.2g})".strip()

    rows = [
        (
            row,
            *(f"{arithmetic(row, v, peak or gpu.flops):.2g}" for v in ("mixit", "standard")),
            *(cell(row, name) for name in MIXERS),
        )
        for row in scale.rows
    ]
    of = "this GPU's peak" if peak else f"the peak of an {gpu.name}"
    said = f"Milliseconds of one layer, forward and backward, bfloat16. Arithmetic: FLOPs at {of}."
    said += "" if scale.rehearsal else f" In parentheses: modeled for an {gpu.name}."
    header = ("shape", "arithmetic: mixing", "arithmetic: attention", *MIXERS)
    return f"{said}\n\n{markdown_table(header, rows, left=1)}{_not_passed(checks)}"


def _training(scale: Scale, machine: Machine, checks: Checks) -> str:
    def number(check: Check, key: str, form: str) -> str:
        value = check.figures.get(key)
        return "" if value is None else format(value, form)

    rows = [
        (
            check.name,
            _state(check),
            check.said,
            number(check, "loss", ".3f"),
            number(check, "tokens_per_s", ",.0f"),
            number(check, "memory_gib", ".1f"),
        )
        for check in checks
    ]
    header = ("run", "", "found", "last loss", "tokens/s", "GiB")
    return markdown_table(header, rows, left=3)


def _throughput(scale: Scale, machine: Machine, checks: Checks) -> str:
    """Return the measured speeds beside the modeled ones."""
    rows = [
        (
            check.name,
            row["variant"],
            f"{row['tokens_per_s']:,.0f}",
            "-" if row["modeled_tokens_per_s"] is None else f"{row['modeled_tokens_per_s']:,.0f}",
            f"{row['peak_memory_bytes'] / 2**30:.3g}",
            f"{row['estimated_memory_bytes'] / 2**30:.3g}",
        )
        for check in checks
        for row in check.figures.get("rows", [])
    ]
    gpu = f"modeled for an {scale.gpu}"
    header = ("on", "variant", "tokens/s", gpu, "peak GiB of a rank", gpu)
    return (markdown_table(header, rows, left=2) if rows else "") + _not_passed(checks)


def speeds(checks: Checks) -> str:
    """Return the table of the summary, with one line per variant."""
    checks = [check for check in checks if check.state == "pass"]
    if not checks:
        return ""
    by_ranks = [{row["variant"]: row for row in check.figures["rows"]} for check in checks]
    header = ["variant"]
    for check in checks:
        header += [f"tokens/s, {check.name}", "to standard", "MFU"]

    def cells(row: dict[str, Any]) -> tuple[str, ...]:
        mfu = "" if row["mfu"] is None else f"{row['mfu']:.1%}"
        return f"{row['tokens_per_s']:,.0f}", f"{row['ratio']:.3f}", mfu

    rows = [
        (variant, *(cell for rows in by_ranks for cell in cells(rows[variant])))
        for variant in by_ranks[0]
    ]
    return markdown_table(header, rows, left=1)


_TABLES: dict[str, Callable[[Scale, Machine, Checks], str]] = {
    "doctor": _doctor,
    "parity": _parity,
    "times": _times,
    "training": _training,
    "throughput": _throughput,
}

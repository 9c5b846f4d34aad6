"""ladder.md, whose tables the screen shows too."""

from collections.abc import Sequence

from mixit_titan.ladder.bootstrap import Fit, Interval
from mixit_titan.ladder.fits import curve_json, surface_json
from mixit_titan.ladder.report import Ladder, compared
from mixit_titan.tables import markdown_table

Table = tuple[str, list[str], list[list[str]]]
"""Its title, its header, its rows."""


def tables(ladder: Ladder) -> list[Table]:
    found = [_surfaces(ladder), _curves(ladder), _rungs(ladder), _budgets(ladder)]
    found += [_best(ladder), _forecast(ladder)]
    return [table for table in found if table[2]]


def markdown(ladder: Ladder) -> str:
    parts = [ladder.scale.about, *notes(ladder)]
    for title, header, rows in tables(ladder):
        parts += [f"## {title}", markdown_table(header, rows, left=1)]
    parts.append("![Loss over FLOPs, loss over size for each budget, gap to standard](ladder.png)")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def notes(ladder: Ladder) -> list[str]:
    """Sentences: how far it is, what is left out, what the forecast is worth."""
    depths = ", ".join(map(str, ladder.scale.depths))
    said = [
        f"{len(ladder.points)} of {len(ladder.runs)} runs at depths {depths}, on "
        f"{ladder.scale.text}. Losses are nats per token after the last step, on the same "
        f"{ladder.scale.validation_rows:,} rows; after a figure stands its 95% interval."
    ]
    said += [f"Left out: {name}: {why}." for name, why in ladder.left_out.items()]
    for stack, found in ladder.fits.items():
        said += [f"No fit for {stack}: {why}." for why in found.missing]
    for stack, gaps in ladder.gaps.items():
        if gaps.trend:
            said.append(
                f"The gap of {stack} to {ladder.baseline} at equal tokens changes by "
                f"{shown(gaps.trend.slope, gaps.trend.interval, 3, sign='+')} nats for ten times "
                f"the FLOPs: {gaps.trend.verdict}."
            )
    if ladder.forecast is None:
        said.append("No forecast was frozen before the largest runs (--forecast).")
    elif not ladder.changes:
        said.append(
            f"The forecast is of {ladder.forecast['date']}, SHA-256 {ladder.forecast['sha256']}."
        )
    return said + [
        f"The forecast does not count, and is not shown: {change}." for change in ladder.changes
    ]


def shown(value: float, interval: Interval | Sequence[float], digits: int, sign: str = "") -> str:
    """`1.937 (1.921 to 1.953)`."""
    low, high = (f"{each:{sign}.{digits}f}" for each in interval)
    return f"{value:{sign}.{digits}f} ({low} to {high})"


def _surfaces(ladder: Ladder) -> Table:
    rows = [
        [stack, *_constants(found.surface, ("E", "alpha", "beta"))]
        for stack, found in ladder.fits.items()
        if found.surface
    ]
    header = ["stack", "E", "alpha", "beta", "runs", "error"]
    return "L(N, D) = E + A / N^alpha + B / D^beta", header, rows


def _curves(ladder: Ladder) -> Table:
    rows = [
        [stack, *_constants(found.curve, ("E", "gamma"))]
        for stack, found in ladder.fits.items()
        if found.curve
    ]
    return "L(C) = E + A / C^gamma", ["stack", "E", "gamma", "runs", "error"], rows


def _constants(fit: Fit, names: Sequence[str]) -> list[str]:
    found = (surface_json if len(fit.law.scales) == 2 else curve_json)(fit)
    cells = [shown(found[name]["value"], found[name]["interval"], 3) for name in names]
    return [*cells, str(found["runs"]), f"{found['error']:.2%}"]


def _rungs(ladder: Ladder) -> Table:
    rows = [
        [
            stack,
            str(gap.depth),
            f"{gap.at:.2e}",
            "-" if gap.measured is None else f"{gap.measured:+.3f}",
            shown(gap.fitted, gap.interval, 3, sign="+"),
        ]
        for stack, found in ladder.gaps.items()
        for gap in found.rungs
    ]
    header = ["stack", "depth", f"FLOPs of {ladder.baseline}", "measured", "fitted"]
    return f"Gap to {ladder.baseline} at equal tokens", header, rows


def _budgets(ladder: Ladder) -> Table:
    rows = [
        [stack, f"{gap.at:.2e}", shown(gap.fitted, gap.interval, 3, sign="+")]
        for stack, found in ladder.gaps.items()
        for gap in found.budgets
    ]
    return f"Gap to {ladder.baseline} at equal FLOPs", ["stack", "FLOPs", "fitted"], rows


def _best(ladder: Ladder) -> Table:
    rows = []
    for stack, found in ladder.best.items():
        for best in found:
            low, high = best.depths
            depth = f"{best.depth} ({low} to {high})" + (", edge" if best.at_edge else "")
            sizes = [f"{best.params:,}", f"{best.tokens:.2e}", f"{best.loss:.3f}"]
            rows.append([stack, f"{best.budget:.2e}", depth, *sizes])
    return "Best size for a budget", ["stack", "FLOPs", "depth", "N", "tokens", "loss"], rows


def _forecast(ladder: Ladder) -> Table:
    rows = []
    for row in compared(ladder):
        curve = row["curve"] and shown(row["curve"]["loss"], row["curve"]["interval"], 3)
        result = "not made" if row["result"] is None else f"{row['result']:.3f}"
        inside = {None: "-", True: "yes", False: "no"}[row["inside"]]
        surface = shown(row["surface"]["loss"], row["surface"]["interval"], 3)
        rows.append([row["name"], surface, curve or "-", result, inside])
    header = ["run", "by L(N, D)", "by L(C)", "result", "inside"]
    return "Forecast beside result", header, rows

"""ladder.md, and the tables and notes that are also printed."""

from collections.abc import Sequence

from mixit_titan.ladder.bootstrap import Fit, Interval
from mixit_titan.ladder.fits import curve_json, surface_json
from mixit_titan.ladder.report import Ladder, compared
from mixit_titan.tables import markdown_table

Table = tuple[str, list[str], list[list[str]]]
"""Title, header, rows."""


_TRENDS = {"closes": "it closes", "widens": "it widens"}
"""How a verdict in ladder.json is written."""


def tables(ladder: Ladder) -> list[Table]:
    """The tables that have any rows."""
    found = [_surfaces(ladder), _curves(ladder), _rungs(ladder), _budgets(ladder)]
    found += [_best(ladder), _forecast(ladder)]
    return [table for table in found if table[2]]


def markdown(ladder: Ladder) -> str:
    """The content of ladder.md."""
    parts = ["# Scaling ladder", ladder.scale.about, *notes(ladder)]
    for title, header, rows in tables(ladder):
        parts += [f"## {title}", markdown_table(header, rows, left=1)]
    alt = f"Loss over FLOPs, loss over size per budget, gap to {ladder.baseline}"
    parts.append(f"![{alt}](ladder.png)")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def notes(ladder: Ladder) -> list[str]:
    """Sentences on progress, on what is left out, on the trends, and on the forecast."""
    depths = ", ".join(map(str, ladder.scale.depths))
    said = [
        f"{len(ladder.points)} of {len(ladder.runs)} runs are finished, at depths {depths}, "
        f"trained on {ladder.scale.text}. N counts the parameters of the layers, D the training "
        "tokens, C the training FLOPs. Losses are in nats per token after the last step, on the "
        f"same {ladder.scale.validation_rows:,} validation rows; 95% intervals are in parentheses."
    ]
    if ladder.bigram is not None:
        said.append(
            f"A bigram table, counted on the training rows, has {ladder.bigram:.3f} on these rows: "
            "to be better, a model has to use more than the current token."
        )
    said += [f"Left out: {name}: {why}." for name, why in ladder.left_out.items()]
    for stack, found in ladder.fits.items():
        said += [f"No fit for {stack}: {why}." for why in found.missing]
    for stack, gaps in ladder.gaps.items():
        if gaps.trend:
            said.append(
                f"The gap of {stack} to {ladder.baseline} at equal tokens changes by "
                f"{shown(gaps.trend.slope, gaps.trend.interval, 3, sign='+')} nats per tenfold "
                f"FLOPs: {_TRENDS.get(gaps.trend.verdict, gaps.trend.verdict)}."
            )
    if ladder.forecast is None and not ladder.changes:
        said.append("No forecast was frozen before the largest runs were trained (--forecast).")
    elif ladder.forecast is not None and not ladder.changes:
        said.append(
            f"The forecast was frozen at {ladder.forecast['date']}, SHA-256 "
            f"{ladder.forecast['sha256']}."
        )
        said += _outcome(ladder)
    return said + [
        f"The forecast is invalid, and is not shown: {change}." for change in ladder.changes
    ]


def _outcome(ladder: Ladder) -> list[str]:
    """What came of the forecast, once there are results."""
    rows = [row for row in compared(ladder) if row["result"] is not None]
    if not rows:
        return []
    inside = sum(row["inside"] for row in rows)
    below = sum(row["result"] < row["surface"]["loss"] for row in rows)
    return [
        f"{inside} of {len(rows)} results lie inside the intervals of L(N, D), and {below} are "
        "below the forecast."
    ]


def shown(value: float, interval: Interval | Sequence[float], digits: int, sign: str = "") -> str:
    """A value and its interval: `1.937 (1.921 to 1.953)`."""
    low, high = (f"{each:{sign}.{digits}f}" for each in interval)
    return f"{value:{sign}.{digits}f} ({low} to {high})"


def _surfaces(ladder: Ladder) -> Table:
    rows = [
        [stack, *_constants(found.surface, ("E", "alpha", "beta"))]
        for stack, found in ladder.fits.items()
        if found.surface
    ]
    header = ["stack", "E", "alpha", "beta", "runs", "error"]
    return "Fit of L(N, D) = E + A / N^alpha + B / D^beta to all runs", header, rows


def _curves(ladder: Ladder) -> Table:
    rows = [
        [stack, *_constants(found.curve, ("E", "gamma"))]
        for stack, found in ladder.fits.items()
        if found.curve
    ]
    header = ["stack", "E", "gamma", "runs", "error"]
    return "Fit of L(C) = E + A / C^gamma to the compute frontier", header, rows


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
    return f"Gap to {ladder.baseline} at equal tokens, in nats per token", header, rows


def _budgets(ladder: Ladder) -> Table:
    rows = [
        [stack, f"{gap.at:.2e}", shown(gap.fitted, gap.interval, 3, sign="+")]
        for stack, found in ladder.gaps.items()
        for gap in found.budgets
    ]
    title = f"Gap to {ladder.baseline} at equal FLOPs, in nats per token"
    return title, ["stack", "FLOPs", "fitted"], rows


def _best(ladder: Ladder) -> Table:
    rows = []
    for stack, found in ladder.best.items():
        for best in found:
            low, high = best.depths
            depth = f"{best.depth} ({low} to {high})" + (", at the edge" if best.at_edge else "")
            sizes = [f"{best.params:,}", f"{best.tokens:.2e}", f"{best.loss:.3f}"]
            rows.append([stack, f"{best.budget:.2e}", depth, *sizes])
    header = ["stack", "FLOPs", "depth", "N", "tokens", "fitted loss"]
    return "Best size for each budget", header, rows


def _forecast(ladder: Ladder) -> Table:
    rows = []
    for row in compared(ladder):
        curve = row["curve"] and shown(row["curve"]["loss"], row["curve"]["interval"], 3)
        result = "not run" if row["result"] is None else f"{row['result']:.3f}"
        inside = {None: "-", True: "yes", False: "no"}[row["inside"]]
        surface = shown(row["surface"]["loss"], row["surface"]["interval"], 3)
        rows.append([row["name"], surface, curve or "-", result, inside])
    header = ["run", "L(N, D)", "L(C)", "result", "inside the interval of L(N, D)"]
    return "Forecast and result", header, rows

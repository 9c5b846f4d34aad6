"""attention.png: one map per head, one row per layer, with the two best heads outlined.

Shapes: N heads, L length.
"""

import math
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mixit_titan.analysis.attention import NAMES, SCORES, TIMES_UNIFORM, stands_out
from mixit_titan.plotting import OTHERS, save_figure

OUTLINES = {"induction": OTHERS[1], "previous": OTHERS[0]}
"""The colors of both kinds of heads, in every figure."""
_COLUMNS = 16  # maps side by side; a layer with more heads takes several rows
_INCHES = (1.5, 3.0, 5.0)  # of a map: the least; with few maps; with many tokens
_ACROSS = 24.0  # inches for all maps side by side, where there are many
_PER_LABEL = 0.13  # inches, for a label that is easy to read
_LABELS = 48  # on an axis; of more tokens, only some are named


def draw_attention(
    found: dict[str, Any],
    maps: list[torch.Tensor],
    names: list[str],
    looks: list[tuple[int, int]],
    *,
    title: str,
    mixing: list[bool],
    path: Path,
) -> None:
    """Draw the maps of one sequence. `maps`: (N, L, L) for each layer; `names`: the sequence's
    tokens. `looks`: (i, j) where an induction head would attend from query i to key j. `mixing`:
    for each layer, whether its matrices are fixed, so that none of its heads searches for a
    token."""
    columns = min(_COLUMNS, len(maps[0]))
    rows_of_layer = math.ceil(len(maps[0]) / columns)
    side = _side(columns, len(names))
    size = (side * columns + 2, side * rows_of_layer * len(maps) + 1.5)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows_of_layer * len(maps), columns, squeeze=False)
    colors = {False: {"cmap": "Greys", "vmin": 0.0, "vmax": 1.0}}
    if any(mixing):
        drawn = [maps_NLL for maps_NLL, mixes in zip(maps, mixing, strict=True) if mixes]
        limit = _largest_beside_diagonal(drawn)
        colors[True] = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    images = {}
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    for row in found["heads"]:
        down, across = divmod(row["head"], columns)
        axes = grid[row["layer"] * rows_of_layer + down, across]
        mixes, map_LL = mixing[row["layer"]], maps[row["layer"]][row["head"]]
        images[mixes] = axes.imshow(map_LL.numpy(force=True), **colors[mixes])
        best = [] if mixes else [kind for kind in SCORES if _is_best(found, kind, row)]
        labels = [_label_of(found, kind) for kind in best]
        axes.set_title(_caption(row, labels, scores=not mixes and side > 2), fontsize=8)
        _outline(axes, best)
        if "induction" in best and looks:
            i, j = zip(*looks, strict=True)
            ring = {"facecolors": "none", "edgecolors": OUTLINES["induction"]}
            axes.scatter(j, i, s=(1.5 * 72 * side / len(names)) ** 2, **ring)
        if across == 0:
            _label(axes.yaxis, names, side)
    for axes in grid[-1]:
        _label(axes.xaxis, names, side, rotation=90)
    for mixes, image in images.items():
        bar = figure.colorbar(image, ax=grid, aspect=30, extend="max" if mixes else "neither")
        bar.set_label("entry of the mixing matrix" if mixes else "attention weight")
    figure.supylabel("query", fontsize=9)
    figure.supxlabel("key", fontsize=9)
    figure.suptitle(_headline(found, title, all(mixing)), fontsize=11)
    save_figure(figure, path)


def _side(columns: int, tokens: int) -> float:
    """The width and height of a map, in inches."""
    least, usual, most = _INCHES
    wanted = min(most, max(usual, _PER_LABEL * min(tokens, _LABELS)))
    return max(least, min(wanted, _ACROSS / columns))


def _largest_beside_diagonal(maps: list[torch.Tensor]) -> float:
    """The largest entry off the diagonal: beside the identity's ones, all others would be pale."""
    beside = [(m_NLL - m_NLL.diagonal(dim1=1, dim2=2).diag_embed()).abs().max() for m_NLL in maps]
    return max(beside).item() or 1.0


def _is_best(found: dict[str, Any], kind: str, row: dict[str, Any]) -> bool:
    best = found[f"{kind}_head"]
    return best is not None and (best["layer"], best["head"]) == (row["layer"], row["head"])


def _label_of(found: dict[str, Any], kind: str) -> str:
    """`induction head`, or only `best induction score` where that is close to the baseline."""
    return NAMES[kind] if stands_out(found, kind) else f"best {kind} score"


def _outline(axes: Axes, kinds: list[str]) -> None:
    for kind in reversed(kinds):
        for spine in axes.spines.values():
            spine.set(color=OUTLINES[kind], linewidth=3)


def _caption(row: dict[str, Any], best: list[str], *, scores: bool) -> str:
    lines = [_place(row), *best]
    if scores:
        lines.append(", ".join(f"{k} {row[k]:.2f}" for k in SCORES if row[k] is not None))
    return "\n".join(lines)


def _place(row: dict[str, Any]) -> str:
    return f"layer {row['layer'] + 1}, head {row['head'] + 1}"


def _label(axis: Any, names: list[str], side: float, **options: Any) -> None:
    every = math.ceil(len(names) / _LABELS)
    shown = names[::every]
    size = max(3.0, min(8.0, 60 * side / len(shown)))
    axis.set_ticks(range(0, len(names), every), shown, fontsize=size, **options)


def _headline(found: dict[str, Any], title: str, mixing: bool) -> str:
    if mixing:
        note = "mixing matrices, which do not depend on the input"
        return f"{title}\n{note} (the color scale cuts off the diagonal, which is about 1)"
    heads = [
        f"{_found(found, kind)}: {_place(best)} "
        f"(mass {best['score']:.2f}, uniform baseline {uniform:.2f})"
        for kind, uniform in found["uniform"].items()
        if (best := found[f"{kind}_head"]) is not None
    ]
    return "\n".join([title, *heads])


def _found(found: dict[str, Any], kind: str) -> str:
    if stands_out(found, kind):
        return f"best {NAMES[kind]}"
    return f"no {NAMES[kind]} at {TIMES_UNIFORM:g} times the uniform baseline; best score"

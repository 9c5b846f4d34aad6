"""attention.png: a map for each layer (down) and head (across), the two best heads outlined.

Shapes: N heads, L length.
"""

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mixit_titan.analysis.attention import SCORES
from mixit_titan.plotting import save_figure

_OUTLINES = {"induction": "#d62728", "previous": "#17becf"}
_NAMES = {"induction": "induction head", "previous": "previous-token head"}
_INCHES = 3.0  # of a map, where there are few
_ACROSS = 40.0  # inches of all maps together, where there are many
_LABELS = 48  # on an axis; of more tokens only some are named


def draw_attention(
    found: dict[str, Any],
    maps: list[torch.Tensor],
    names: list[str],
    looks: list[tuple[int, int]],
    *,
    title: str,
    signed: bool,
    path: Path,
) -> None:
    """`maps`: (N, L, L) of each layer, of the sequence whose tokens are `names`. `looks`: where an
    induction head would look. `signed`: mixing matrices, which have negative entries too."""
    layers, heads = len(maps), len(maps[0])
    side = max(0.7, min(_INCHES, _ACROSS / max(layers, heads)))
    figure = Figure(figsize=(side * heads + 1.6, side * layers + 1.2), layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
    limit = _largest_beside_diagonal(maps) if signed else 1.0
    colors = {"cmap": "RdBu_r", "vmin": -limit} if signed else {"cmap": "Greys", "vmin": 0.0}
    rows = iter(found["heads"])
    for layer, maps_NLL in enumerate(maps):
        for head, map_LL in enumerate(maps_NLL):
            axes, row = grid[layer, head], next(rows)
            image = axes.imshow(map_LL.cpu(), vmax=limit, **colors)
            best = [kind for kind in SCORES if _is(found[f"{kind}_head"], row)]
            _outline(axes, best)
            if "induction" in best and looks and not signed:
                i, j = zip(*looks, strict=True)
                axes.scatter(j, i, s=60, facecolors="none", edgecolors=_OUTLINES["induction"])
            if side > 1.5:
                axes.set_title(_caption(row, best), fontsize=8)
    for axes in grid[:, 0]:
        _label(axes.yaxis, names, side)
    for axes in grid[-1]:
        _label(axes.xaxis, names, side, rotation=90)
    grid[0, 0].set_xlim(-0.5, len(names) - 0.5)
    bar = figure.colorbar(image, ax=grid, shrink=0.6, extend="max" if signed else "neither")
    bar.set_label("entry of the mixing matrix" if signed else "share of attention")
    figure.supylabel("from token", fontsize=9)
    figure.supxlabel("to token", fontsize=9)
    figure.suptitle(_headline(found, title, signed), fontsize=11)
    save_figure(figure, path)


def _largest_beside_diagonal(maps: list[torch.Tensor]) -> float:
    """The identity on the diagonal would make all the rest look like nothing."""
    beside = [(m_NLL - m_NLL.diagonal(dim1=1, dim2=2).diag_embed()).abs().max() for m_NLL in maps]
    return max(beside).item() or 1.0


def _is(best: dict[str, Any] | None, row: dict[str, Any]) -> bool:
    return best is not None and (best["layer"], best["head"]) == (row["layer"], row["head"])


def _outline(axes: Axes, kinds: list[str]) -> None:
    for kind in kinds:
        for spine in axes.spines.values():
            spine.set(color=_OUTLINES[kind], linewidth=3)


def _caption(row: dict[str, Any], best: list[str]) -> str:
    scores = [f"{kind} {row[kind]:.2f}" for kind in SCORES if row[kind] is not None]
    names = "".join(f"\n{_NAMES[kind]}" for kind in best)
    return f"layer {row['layer']}, head {row['head']}{names}\n{', '.join(scores)}"


def _label(axis: Any, names: list[str], side: float, **options: Any) -> None:
    if side <= 1.5:
        axis.set_ticks([])
        return
    every = -(-len(names) // _LABELS)
    size = max(4.0, min(8.0, 60 * side / len(names) * every))
    axis.set_ticks(range(0, len(names), every), names[::every], fontsize=size, **options)


def _headline(found: dict[str, Any], title: str, signed: bool) -> str:
    if signed:
        return f"{title}: mixing matrices, the same whatever is read (the diagonal is cut off)"
    heads = [
        f"layer {best['layer']} head {best['head']} is the most of an {_NAMES[kind]} "
        f"({best['score']:.2f}; uniform {found['uniform'][kind]:.2f})".replace("an prev", "a prev")
        for kind in SCORES
        if (best := found[f"{kind}_head"]) is not None
    ]
    return "\n".join([title, *heads])

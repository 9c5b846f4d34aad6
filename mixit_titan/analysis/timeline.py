"""How a run learns to use its context, measured at every checkpoint that it has kept.

The in-context learning score is the loss at late positions minus that at early ones, as in
"In-context Learning and Induction Heads" (Olsson et al., 2022): the more a model gains from
context, the further the score is below 0. The best induction and previous-token scores are measured
with it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mixit_titan.analysis.attention import SCORES, attention
from mixit_titan.analysis.attention_figure import OUTLINES
from mixit_titan.analysis.sequences import Sequences
from mixit_titan.errors import ConfigError
from mixit_titan.evaluation.likelihood import Window, plain_forward, score
from mixit_titan.model.llama import MixitLlama
from mixit_titan.plotting import OTHERS, save_figure
from mixit_titan.runtime.checkpoint_files import problem_of, steps
from mixit_titan.runtime.trained import load_trained

_SHORTEST = 16  # tokens, so that early and late positions do not overlap


def timeline(run_dir: Path, sequences: Sequences) -> dict[str, Any]:
    """One row per complete checkpoint of a training run."""
    length = int(sequences.lengths_N.min())
    if length < _SHORTEST:
        raise ConfigError(
            f"the sequences have {length} tokens: the in-context learning score needs {_SHORTEST}"
        )
    spans = {"early": (length // 16, length // 8 - 1), "late": (length - length // 8, length - 1)}
    rows = [
        {"step": step} | _look(load_trained(run_dir, step).model, sequences, spans)
        for step in _complete(run_dir / "checkpoint")
    ]
    return {
        "rows": rows,
        "positions": {name: list(span) for name, span in spans.items()},
        "sequences": sequences.described,
    }


def _complete(folder: Path) -> Iterator[int]:
    for step in sorted(steps(folder)):
        if problem_of(folder / f"step-{step}") is None:
            yield step


def _look(
    model: MixitLlama, sequences: Sequences, spans: dict[str, tuple[int, int]]
) -> dict[str, Any]:
    rows = [sequences.row(n)[0].numpy() for n in range(len(sequences))]
    windows = [Window(tokens, scored=len(tokens) - 1) for tokens in rows]
    scores = score(windows, plain_forward(model), vocab=model.config.shape.vocab)
    # The first value of a row is the loss of its second token.
    losses = {
        name: float(np.mean([found.nats[first - 1 : last] for found in scores]))
        for name, (first, last) in spans.items()
    }
    heads = attention(model, sequences)
    return {
        "loss": float(np.concatenate([found.nats for found in scores]).mean()),
        **losses,
        "in_context": losses["late"] - losses["early"],
        **{f"{kind}_head": heads[f"{kind}_head"] for kind in SCORES},
        "uniform": heads["uniform"],
    }


def head_score(row: dict[str, Any], kind: str) -> float | None:
    """The score of the best head of a kind; None where no position counts."""
    head = row[f"{kind}_head"]
    return None if head is None else head["score"]


def draw_timeline(found: dict[str, Any], *, title: str, path: Path) -> None:
    """Draw three panels over training steps: losses, in-context learning score, best heads."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    losses, gain, heads = figure.subplots(1, 3)
    rows = found["rows"]
    at = [row["step"] for row in rows]
    for color, (name, (first, last)) in zip(OTHERS[2:], found["positions"].items(), strict=False):
        label = f"{name}: {first} to {last} tokens of context"
        losses.plot(at, [row[name] for row in rows], "o-", color=color, label=label)
    losses.set_ylabel("loss (nats per token)")
    gain.plot(at, [row["in_context"] for row in rows], "o-", color="black")
    gain.set_title("in-context learning score", fontsize=9)
    gain.axhline(0, ls=":", color="gray")
    gain.set_ylabel("late - early loss (nats per token)")
    for kind in SCORES:
        masses = [head_score(row, kind) for row in rows]
        heads.plot(at, masses, "o-", color=OUTLINES[kind], label=f"best {kind} score")
        uniform = rows[0]["uniform"][kind]
        if uniform is not None:
            heads.axhline(uniform, ls=":", color=OUTLINES[kind])
    heads.set_ylabel("attention mass")
    heads.set_title("dotted: uniform baseline", fontsize=9)
    for axes in (losses, gain, heads):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    for axes in (losses, heads):
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), frameon=False)
    figure.suptitle(title, fontsize=11)
    save_figure(figure, path)

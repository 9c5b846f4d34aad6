"""`mixit-titan analyze KIND [RUN_DIR]`: look inside a trained model, or test a theorem."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from mixit_titan.analysis.analyzed_run import AnalyzedRun, load_analyzed_run
from mixit_titan.analysis.attention import (
    NAMES,
    SCORES,
    TIMES_UNIFORM,
    attention,
    stands_out,
    targets,
)
from mixit_titan.analysis.attention_figure import draw_attention
from mixit_titan.analysis.coordinates_table import analyze_coordinates
from mixit_titan.analysis.covariance import covariance
from mixit_titan.analysis.figures import draw_covariance, draw_spectrum, draw_subspace
from mixit_titan.analysis.hooks import attention_maps
from mixit_titan.analysis.sequences import Sequences
from mixit_titan.analysis.spectrum import spectrum
from mixit_titan.analysis.subspace import subspace
from mixit_titan.analysis.theorems import analyze_expressivity, analyze_sde
from mixit_titan.analysis.timeline import draw_timeline, head_score, timeline
from mixit_titan.data.encoding import Encoder
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.fields import Group
from mixit_titan.files import write_json
from mixit_titan.jobs.lock import locked
from mixit_titan.ranges import NOT_NEGATIVE, Range
from mixit_titan.tables import screen_table

_READABLE = 32  # tokens of a map whose labels are easy to read
_BEST = 3  # heads of each kind in the table
_DEPTHS = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class AnalyzeArguments:
    """Look inside a trained model: attention maps and induction heads, covariance of tokens, the
    subspace of the hidden states, rank collapse, in-context learning over training. Or, without a
    run, test a theorem of the paper: that random layers follow an SDE (2.1), and that frozen
    queries and keys can express what trained ones do (5.1). Or see how activations and the best
    learning rate change with width.

    Example: mixit-titan analyze attention runs/retrieval --out runs/retrieval/analysis
             mixit-titan analyze sde
    """

    kind: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="KIND")]
    """attention, covariance, subspace or spectrum of a run; timeline over all checkpoints of a
    training run; sde, expressivity or coordinates, which need no run."""
    run_dir: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR")] = None
    """The folder of a task, of one run of a sweep, or of a training run. Left out for sde,
    expressivity and coordinates."""
    out: Path | None = None
    """Folder for KIND.json and KIND.png (default: RUN_DIR/analysis, or runs/analysis without a
    run)."""
    sequences: Annotated[int, Range(least=1, most=10**6), Group("what a run's model reads")] = 64
    """How many test examples, or pieces of text, the model reads."""
    task: Annotated[str | None, Group("what a run's model reads")] = None
    """MODULE:CLASS of the task of RUN_DIR, if it is your own; its code is imported."""
    text: Path | None = None
    """A text file for a language model to read (default: the run's validation data, or Python's
    standard library if that data is gone)."""
    prompt: Annotated[str | None, Group("attention")] = None
    """attention: the text whose maps are drawn, for a language model (default: the beginning of
    what it reads)."""
    example: Annotated[int | None, NOT_NEGATIVE] = None
    """attention: the test example whose maps are drawn, for a task; the first is 0 (default: the
    longest one whose labels are easy to read)."""
    depths: Annotated[
        tuple[int, ...] | None,
        Range(least=1, most=1000),
        Group("covariance, spectrum, coordinates"),
    ] = None
    """covariance, spectrum: numbers of layers of the untrained models (default: 2 4 8 16 32).
    coordinates: numbers of layers (default: 2 4 8)."""
    widths: Annotated[
        tuple[int, ...] | None, Range(least=2, most=4096), Group("kinds without a run")
    ] = None
    """sde: widths of the random layers (default: 8 16 32 64 128). coordinates: widths of the models
    (default: 32 64 128 256)."""
    ratio: Annotated[float | None, Range(above=0, most=2)] = None
    """sde: depth divided by width (default: 0.25)."""
    paths: Annotated[int | None, Range(least=2, most=10**7)] = None
    """sde: how many models of each width, and how many paths of the SDE, are simulated (default:
    20,000)."""
    heads: Annotated[tuple[int, ...] | None, Range(least=1, most=4096)] = None
    """expressivity: numbers of heads (default: 1 4 16 64)."""
    seeds: Annotated[int | None, Range(least=1, most=1000)] = None
    """expressivity: how many seeds of data, queries and keys (default: 3)."""
    rates: Annotated[tuple[float, ...] | None, Range(above=0, most=10)] = None
    """coordinates: learning rates to try at each width (default: 2e-3 to 6.4e-2, doubling)."""
    steps: Annotated[int | None, Range(least=1, most=10_000)] = None
    """coordinates: training steps at each rate (default: 80)."""

    def check(self) -> None:
        """Refuse, in one sentence, options that do not belong together."""
        if self.kind not in (*KINDS, *THEOREMS):
            raise unknown("kind of analysis", self.kind, [*KINDS, *THEOREMS])
        if self.kind in KINDS and self.run_dir is None:
            raise ConfigError(f"{self.kind} analyzes a run: name its folder, RUN_DIR")
        if self.kind in THEOREMS and self.run_dir is not None:
            raise ConfigError(f"{self.kind} takes no run: leave out {str(self.run_dir)!r}")
        for flag, kinds in _OPTIONS.items():
            if getattr(self, flag) is not None and self.kind not in kinds:
                raise ConfigError(
                    f"--{flag} is for {', '.join(kinds)}, not for {self.kind}: leave it out"
                )
            if getattr(self, flag) == ():
                raise ConfigError(f"--{flag} is empty: give one or more values")


def run_analyze(args: AnalyzeArguments) -> None:
    """Run one kind of analysis; print its table, where its files are, and what to type next."""
    args.check()
    if args.run_dir is None:
        out = args.out or Path("runs/analysis")
        with locked(out):
            found, table = THEOREMS[args.kind](args, out / f"{args.kind}.png")
            write_json(out / f"{args.kind}.json", found)
    else:
        check_device()
        run = load_analyzed_run(args.run_dir, text=args.text, count=args.sequences, task=args.task)
        out = args.out or args.run_dir / "analysis"
        with locked(out):
            found, table = KINDS[args.kind](run, args, out / f"{args.kind}.png")
            write_json(out / f"{args.kind}.json", found)
    console = Console()
    console.print(table)
    for ending in ("json", "png"):
        console.print(f"wrote {out / args.kind}.{ending}", soft_wrap=True)
    console.print(_next(args), soft_wrap=True, markup=False)


def _next(args: AnalyzeArguments) -> str:
    """What to type next: another kind, in the order of the documentation."""
    if args.run_dir is None:
        others = [*THEOREMS]
        return f"Next: mixit-titan analyze {others[(others.index(args.kind) + 1) % len(others)]}"
    others = [kind for kind in KINDS if kind != "timeline"]
    at = others.index(args.kind) + 1 if args.kind in others else 0
    own = [] if args.task is None else ["--task", args.task]
    words = ["mixit-titan", "analyze", others[at % len(others)], str(args.run_dir), *own]
    return f"Next: {shlex.join(words)}"


def _attention(
    run: AnalyzedRun, args: AnalyzeArguments, path: Path
) -> tuple[dict[str, Any], Table]:
    tokens_1L, asked, what = _shown_sequence(run, args)
    found, config = attention(run.model, run.sequences), run.model.config
    draw_attention(
        found,
        [maps_1NLL[0] for maps_1NLL in attention_maps(run.model, tokens_1L)],
        [run.token_name(token) for token in tokens_1L[0].tolist()],
        targets(tokens_1L[0].tolist(), asked)["induction"],
        title=f"{run.title}, {what}",
        mixing=[not pair.attends for pair in config.stack.fill(config.shape.layers)],
        path=path,
    )
    title = f"{run.title}: best heads by attention mass, mean over {run.sequences.described}"
    rows = []
    for kind in SCORES:
        scored = [row for row in found["heads"] if row[kind] is not None]
        for row in sorted(scored, key=lambda row: -row[kind])[:_BEST]:
            masses = [f"{row[kind]:.3f}", f"{found['uniform'][kind]:.3f}"]
            rows.append([kind, row["layer"] + 1, row["head"] + 1, *masses])
    header = ["score", "layer", "head", "mass", "uniform baseline"]
    return found, screen_table(title, header, rows, caption=_verdict(found), caption_justify="left")


def _verdict(found: dict[str, Any]) -> str:
    """Which of the best heads is far enough above the uniform baseline to be called by its name."""
    said = []
    for kind in SCORES:
        best, name = found[f"{kind}_head"], NAMES[kind]
        if best is None:
            said.append(f"no {name} (no position of these sequences counts)")
        elif not stands_out(found, kind):
            said.append(f"no {name} (below {TIMES_UNIFORM:g} times the uniform baseline)")
        else:
            said.append(f"{name}: layer {best['layer'] + 1}, head {best['head'] + 1}")
    return "; ".join(said)


def _shown_sequence(
    run: AnalyzedRun, args: AnalyzeArguments
) -> tuple[torch.Tensor, list[bool], str]:
    """The tokens (1, L) whose maps are drawn, which of them have to be answered, and a name."""
    if run.tokenizer is None:
        assert run.test is not None
        if args.prompt is not None:
            raise ConfigError("--prompt is for language models: choose an --example instead")
        n = _readable(run.test) if args.example is None else args.example
        if not 0 <= n < len(run.test):
            raise ConfigError(f"--example is {n}: there are {len(run.test)} examples, from 0")
        return run.test.row(n), run.test.asked_NL[n].tolist(), f"test example {n}"
    if args.example is not None:
        raise ConfigError("--example is for tasks: give a --prompt instead")
    if args.prompt is None:
        tokens_1L = run.sequences.row(0)[:, :_READABLE]
        return tokens_1L, [True] * tokens_1L.shape[1], f"beginning of {run.sequences.source}"
    try:
        ids = Encoder(run.tokenizer, np.dtype(np.int64)).ids(args.prompt)
    except UnicodeEncodeError:
        raise ConfigError(f"--prompt {args.prompt!r} is not valid UTF-8") from None
    longest = run.model.config.max_seq_len
    if not 1 <= len(ids) <= longest:
        raise ConfigError(f"--prompt has {len(ids)} tokens: the model takes 1 to {longest}")
    tokens_1L = torch.tensor([[int(token) for token in ids]])
    return tokens_1L, [True] * len(ids), "the prompt"


def _readable(sequences: Sequences) -> int:
    """The longest sequence whose labels are easy to read, or else the shortest one."""
    lengths = sequences.lengths_N.tolist()
    fitting = [n for n, length in enumerate(lengths) if length <= _READABLE]
    if not fitting:
        return lengths.index(min(lengths))
    return max(fitting, key=lambda n: (lengths[n], -n))


def _covariance(
    run: AnalyzedRun, args: AnalyzeArguments, path: Path
) -> tuple[dict[str, Any], Table]:
    found = covariance(
        run.variant,
        run.model,
        run.own_start(),
        run.start,
        run.sequences,
        depths=args.depths or _DEPTHS,
    )
    draw_covariance(found, title=run.title, path=path)
    rows = [
        [
            row["variant"],
            row["layers"],
            "trained" if row["trained"] else "at initialization",
            f"{row['covariance']:.5f}",
            f"{row['cosine']:.4f}",
        ]
        for row in found["rows"]
    ]
    title = f"Last hidden states of two tokens, mean over {run.sequences.described}"
    return found, screen_table(title, ["variant", "layers", "when", "covariance", "cosine"], rows)


def _subspace(run: AnalyzedRun, args: AnalyzeArguments, path: Path) -> tuple[dict[str, Any], Table]:
    found = subspace(run.model, run.sequences)
    draw_subspace(found, variant=run.variant, title=run.title, path=path)
    rows = [
        [row["layer"] or "embedding", f"{row['principal']:.1%}", f"{row['neurons']:.1%}"]
        for row in found["rows"]
    ]
    title = f"{run.title}: share of the variance of the hidden states of {found['tokens']:,} tokens"
    top = f"top {found['top']}"
    return found, screen_table(title, ["after layer", f"{top} directions", f"{top} neurons"], rows)


def _spectrum(run: AnalyzedRun, args: AnalyzeArguments, path: Path) -> tuple[dict[str, Any], Table]:
    sequences = run.sequences
    tokens_1L = sequences.row(int(sequences.lengths_N.argmax()))
    found = spectrum(run.model, run.start, tokens_1L, depths=args.depths or _DEPTHS)
    draw_spectrum(found, variant=run.variant, title=run.title, path=path)
    rows = [[row["kind"], row["layers"], f"{row['effective_rank']:.2f}"] for row in found["rows"]]
    title = (
        f"Effective rank (at most {found['length']}) of the product of the mixing matrices of all "
        "layers"
    )
    return found, screen_table(title, ["kind", "layers", "effective rank"], rows)


def _timeline(run: AnalyzedRun, args: AnalyzeArguments, path: Path) -> tuple[dict[str, Any], Table]:
    if run.tokenizer is None:
        raise ConfigError(
            f"timeline reads the checkpoints of a training run, and {args.run_dir} is a task"
        )
    found = timeline(args.run_dir, run.sequences)
    draw_timeline(found, title=f"{run.variant}, {run.sequences.described}", path=path)
    keys = ("loss", "early", "late", "in_context")
    rows = [
        [row["step"], *(f"{row[key]:.4f}" for key in keys)]
        + ["" if (mass := head_score(row, kind)) is None else f"{mass:.3f}" for kind in SCORES]
        for row in found["rows"]
    ]
    title = f"{run.variant} over training: loss, in-context learning score, best heads"
    header = ["step", "loss", "early", "late", "late - early", *(f"best {kind}" for kind in SCORES)]
    return found, screen_table(title, header, rows)


KINDS: dict[str, Callable[[AnalyzedRun, AnalyzeArguments, Path], tuple[dict[str, Any], Table]]] = {
    "attention": _attention,
    "covariance": _covariance,
    "subspace": _subspace,
    "spectrum": _spectrum,
    "timeline": _timeline,
}

THEOREMS: dict[str, Callable[[AnalyzeArguments, Path], tuple[dict[str, Any], Table]]] = {
    "sde": lambda args, path: analyze_sde(
        path, widths=args.widths, ratio=args.ratio, paths=args.paths
    ),
    "expressivity": lambda args, path: analyze_expressivity(
        path, heads=args.heads, seeds=args.seeds
    ),
    "coordinates": lambda args, path: analyze_coordinates(
        path, widths=args.widths, depths=args.depths, rates=args.rates, steps=args.steps
    ),
}
_OPTIONS: dict[str, Sequence[str]] = {
    "prompt": ["attention"],
    "example": ["attention"],
    "depths": ["covariance", "spectrum", "coordinates"],
    "task": list(KINDS),
    "text": list(KINDS),
    "widths": ["sde", "coordinates"],
    "ratio": ["sde"],
    "paths": ["sde"],
    "heads": ["expressivity"],
    "seeds": ["expressivity"],
    "rates": ["coordinates"],
    "steps": ["coordinates"],
}
"""Options that not every kind takes -> the kinds that do."""

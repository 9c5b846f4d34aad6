"""The arguments of `mixit-titan bench`. Nothing here imports torch: the GPUs may have to be hidden
from it first."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mixit_titan.config.toml import read_run
from mixit_titan.model.variants import VARIANTS
from mixit_titan.options import read_options
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, Range

LEAST_ROUNDS = 8


@dataclass
class BenchArguments:
    """Measure training steps of the variants, interleaved, beside the ratio of their FLOPs: of the
    run of a config file, or of a shape. The steps are those of the trainer, on random tokens. A
    file for GPUs is modelled where there is none, and nothing is measured. Any key of a run can be
    overridden by --section.key value; several values of an option that are separated by commas
    make a scan, with a process for each point.

    Example: mixit-titan bench train_configs/debug_mixit.toml --variants standard mixit
    """

    config: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")] = None
    """A run's TOML file. Without one, the options below make a run: one document per row, no
    recomputation, no compilation, the loss in one piece."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    """Any variants, and `plain`, a Llama in plain PyTorch. `standard` is always measured."""
    stack: tuple[str, ...] = ()
    """Stacks to measure beside them, such as "mixit*3 standard" "standard mixit@upper"."""
    flavor: str | None = None
    """A named shape (default: the config's; debug without one). The next options change it."""
    width: str | None = None
    layers: Annotated[int | None, COUNT] = None
    heads: Annotated[int | None, COUNT] = None
    hidden: Annotated[int | None, COUNT] = None
    """Width of the MLP (default: four times a --width, else the flavor's)."""
    vocab: Annotated[int | None, COUNT] = None
    seq_len: str | None = None
    batch: str | None = None
    """Sequences of a step, on each rank, in one microbatch (default: the config's; 4 without)."""
    dtype: str | None = None
    """bfloat16 or float32 (default: the config's; without one bfloat16 on a GPU)."""
    compile: str | None = None
    """on or off."""
    ac: str | None = None
    """Recomputation of activations: none, selective or full."""
    graphs: str | None = None
    """CUDA graphs: on or off (default: as the run, on where there is a GPU)."""
    documents: str | None = None
    """on: documents are packed into rows, and no token sees another document. off: one document
    per row."""
    chunks: str | None = None
    """Pieces of the sequence in which the head and the loss are computed."""
    frozen: str | None = None
    """With many ranks: frozen weights are sharded, or resident (whole on each rank)."""
    device: Literal["auto", "gpu", "cpu"] | None = None
    """As in a run's file."""
    rounds: Annotated[int, Range(least=1, most=10**6)] = LEAST_ROUNDS
    """Timed rounds, after the warm-up. Each is one step of every variant."""
    interleaved: bool = True
    """The variants take turns, as far as they fit into memory together. Off: one after another."""
    nproc: Annotated[int | None, Range(least=1, most=4096)] = None
    """Ranks to start here (default: 1). Ignored inside torchrun and srun."""
    alone: bool = True
    """With many ranks: measure one rank alone as well, for the efficiency of scaling. Turn it off
    where one rank cannot hold the model."""
    profile: bool = False
    """Write a Chrome trace and a table of the costliest operators of each variant."""
    compare: tuple[Path, Path] | None = None
    """Measure nothing: show what has changed between two bench.json, and exit with code 1 if a
    ratio has fallen by more than --tolerance."""
    tolerance: Annotated[float, NOT_NEGATIVE] = 5.0
    """Percent."""
    limits: str | None = None
    """Measure nothing: compute the limits of all flavors on a GPU, such as H100."""
    out: Path = Path("runs/bench")
    """Folder for bench.json and bench.png."""
    overrides: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    """--section.key value ..."""


def read_arguments(words: Sequence[str]) -> BenchArguments:
    own, overrides = _split(words)
    args = read_options(BenchArguments, own, prog="mixit-titan bench")
    return dataclasses.replace(args, overrides=tuple(overrides))


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What belongs to the command, and the overrides of a run: options with a dot in their name,
    each with the value that follows."""
    own: list[str] = []
    overrides: list[str] = []
    target = own
    for word in words:
        if word.startswith("--"):
            target = overrides if "." in word.partition("=")[0] else own
        target.append(word)
        if target is overrides and (not word.startswith("--") or "=" in word):
            target = own  # a key has one value
    return own, overrides


def command_line(args: BenchArguments) -> list[str]:
    """The words that `read_arguments` would read as these arguments."""
    words = [] if args.config is None else [args.config]
    for field in dataclasses.fields(args):
        value = getattr(args, field.name)
        if field.name in ("config", "overrides") or value == field.default:
            continue
        name = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, tuple) else [value])]
    return [*words, *args.overrides]


def means_the_cpu(args: BenchArguments) -> bool:
    """Whether GPUs are to be hidden."""
    if args.device is None and args.config is not None:
        return read_run(args.config, list(args.overrides)).get("device") == "cpu"
    return args.device == "cpu"

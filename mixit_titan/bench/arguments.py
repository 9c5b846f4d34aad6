"""The arguments of `mixit-titan bench`. Nothing here imports torch, because GPUs may have to be
hidden from it first."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mixit_titan.config.toml import read_run
from mixit_titan.fields import Group
from mixit_titan.model.variants import VARIANTS
from mixit_titan.options import read_options
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, Range

LEAST_ROUNDS = 8


@dataclass
class BenchArguments:
    """Measure training steps of the variants, interleaved, and show their speed next to the
    FLOP ratio, for the run of a config file or for a shape.

    The steps are the trainer's own, on random tokens. A config for GPUs is modeled, not measured,
    on a machine without one. Any key of a run can be overridden by --section.key value. Several
    values of an option, separated by commas, make a scan with one process per point.

    Example: mixit-titan bench train_configs/debug_mixit.toml --variants standard mixit
    """

    config: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.toml")] = None
    """The TOML file of a run. Without one, the options below define a run with one document per
    row, no recomputation, no compilation, and the loss in one piece."""
    variants: Annotated[tuple[str, ...], Group("models")] = tuple(VARIANTS)
    """Variants to measure, and `plain`, a Llama in plain PyTorch. `standard` is always measured."""
    stack: tuple[str, ...] = ()
    """Stacks to measure as well, such as "mixit*3 standard" "standard mixit@upper"."""
    flavor: Annotated[str | None, Group("shape")] = None
    """A named shape (default: the config's, or debug without one). The next options change it."""
    width: str | None = None
    """Width of the residual stream."""
    layers: Annotated[int | None, COUNT] = None
    """Number of layers."""
    heads: Annotated[int | None, COUNT] = None
    """Query heads, or mixing matrices, per layer."""
    hidden: Annotated[int | None, COUNT] = None
    """Width of the MLP (default: four times a --width, else the flavor's)."""
    vocab: Annotated[int | None, COUNT] = None
    """Size of the vocabulary."""
    seq_len: str | None = None
    """Tokens in a sequence."""
    batch: Annotated[str | None, Group("training step")] = None
    """Sequences per step on each rank, in one microbatch (default: the config's, or 4 without
    one)."""
    dtype: str | None = None
    """bfloat16 or float32 (default: the config's; without one, bfloat16 on a GPU)."""
    compile: str | None = None
    """torch.compile: on or off (default: as in the run)."""
    ac: str | None = None
    """Activation recomputation: none, selective or full (default: as in the run)."""
    graphs: str | None = None
    """CUDA graphs: on or off (default: as in the run; on if there is a GPU)."""
    documents: str | None = None
    """on: documents are packed into rows, and no token sees another document. off: one document per
    row."""
    chunks: str | None = None
    """Chunks of the sequence in which the head and the loss are computed."""
    frozen: str | None = None
    """With several ranks, keep frozen weights `sharded` or `resident` (complete on each rank)."""
    device: Literal["auto", "gpu", "cpu"] | None = None
    """The device to measure on (default: as in the run)."""
    rounds: Annotated[int, Range(least=1, most=10**6), Group("measurement")] = LEAST_ROUNDS
    """Timed rounds after the warm-up. Each round is one step of every variant."""
    interleaved: bool = True
    """Alternate between the variants, as many as fit into memory together. Off: one after
    another."""
    nproc: Annotated[int | None, Range(least=1, most=4096)] = None
    """Ranks to start on this machine (default: 1). Ignored inside torchrun and srun."""
    alone: bool = True
    """With several ranks, also measure one rank alone, for the scaling efficiency. Turn it off
    where one rank cannot hold the model."""
    profile: bool = False
    """Also write a Chrome trace of each variant, and print its most expensive operators."""
    compare: Annotated[tuple[Path, Path] | None, Group("instead of measuring")] = None
    """Compare two bench.json files instead of measuring: write compare.json to --out, and exit with
    code 1 if a ratio has fallen by more than --tolerance."""
    tolerance: Annotated[float, NOT_NEGATIVE] = 5.0
    """Percent by which a ratio may fall in --compare."""
    limits: str | None = None
    """Compute the FLOP ratios of all flavors on a GPU, such as H100, instead of measuring, and
    write limits.json and limits.md to --out."""
    out: Annotated[Path, Group("output")] = Path("runs/bench")
    """Folder for bench.json, bench.png and other output."""
    overrides: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    """Keys of a run to override: --section.key value ..."""


def read_arguments(words: Sequence[str]) -> BenchArguments:
    """Read the command line; options with a dot in their name become overrides."""
    own, overrides = _split(words)
    args = read_options(BenchArguments, own, prog="mixit-titan bench")
    return dataclasses.replace(args, overrides=tuple(overrides))


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the command's own options from the overrides of a run, which have a dot in their
    name and one value each."""
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
    """Return the words that `read_arguments` would read as these arguments."""
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
    """Return whether GPUs are to be hidden."""
    if args.device is None and args.config is not None:
        return read_run(args.config, list(args.overrides)).get("device") == "cpu"
    return args.device == "cpu"

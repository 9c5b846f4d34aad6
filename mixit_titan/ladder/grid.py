"""The runs of a ladder: which stack, how large, on how many tokens.

    rungs      each depth at a fixed number of tokens per parameter
    IsoFLOP    each budget of FLOPs at several depths

Tokens per parameter are relative to the N of `standard`, so that all stacks of a rung see the same
tokens. A budget is run at the depths whose tokens per parameter lie within `RATIOS`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from mixit_titan.errors import ConfigError
from mixit_titan.ladder.dial import flops_per_token, layer_parameters
from mixit_titan.ladder.scales import Scale
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack
from mixit_titan.model.variants import VARIANTS, find_stack

Series = Literal["rung", "isoflop"]
BASELINE = "standard"
RATIOS = (0.5, 600.0)
"""The range of tokens per parameter of an IsoFLOP run; beyond it, a run says little about the best
size."""
_LEAST_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class LadderRun:
    """One training run of a ladder."""

    stack: str
    """The stack as the user wrote it."""
    depth: int
    series: Series
    budget: float | None
    """The FLOPs of an IsoFLOP run; None for a rung."""
    seed: int
    steps: int
    batch_tokens: int
    params: int
    """N, the parameters of the layers."""
    flops_per_token: int
    largest: bool
    """Whether it belongs to the largest rung, which a forecast predicts."""

    @property
    def tokens(self) -> int:
        """D, the tokens that it trains on."""
        return self.steps * self.batch_tokens

    @property
    def flops(self) -> float:
        """C, the FLOPs of its training."""
        return float(self.tokens * self.flops_per_token)

    @property
    def name(self) -> str:
        """`mixit depth 4 at 6e+11 FLOPs seed 0`, as logs and reports call it."""
        budget = "" if self.budget is None else f" at {self.budget:.3g} FLOPs"
        return f"{self.stack} depth {self.depth}{budget} seed {self.seed}"

    def same_but_seed(self, other: "LadderRun") -> bool:
        """Whether it differs from another run at most in its seed."""
        return replace(self, seed=other.seed) == other


def plan_runs(scale: Scale, vocab: int, seeds: int) -> list[LadderRun]:
    """All runs of a ladder, the cheapest first, so that an interrupted ladder has results."""
    runs = [
        run
        for stack in scale.stacks
        for run in (*_rungs(scale, stack, vocab, seeds), *_isoflop(scale, stack, vocab, seeds))
    ]
    for budget in scale.budgets:
        if not any(run.budget == budget for run in runs):
            raise ConfigError(
                f"no depth fits the budget of {budget:.2g} FLOPs ({RATIOS[0]:g} to {RATIOS[1]:g} "
                "tokens per parameter): leave it out of --budgets, or add --depths"
            )
    return sorted(runs, key=lambda run: (run.largest, run.flops))


def sized(scale: Scale, stack: str, depth: int, vocab: int) -> tuple[Shape, Stack]:
    """The shape and the stack at a depth; a ConfigError if the stack cannot fill it."""
    shape = scale.dial.shape(depth, vocab)
    return shape, find_stack(depth, stack=stack)


def _rungs(scale: Scale, stack: str, vocab: int, seeds: int) -> Iterator[LadderRun]:
    for depth in scale.depths:
        tokens = scale.tokens_per_parameter * _baseline_parameters(scale, depth, vocab)
        for seed in range(seeds):
            yield _run(scale, stack, depth, vocab, tokens=tokens, seed=seed)


def _isoflop(scale: Scale, stack: str, vocab: int, seeds: int) -> Iterator[LadderRun]:
    for budget in scale.budgets:
        for depth in scale.depths:
            baseline = flops_per_token(scale.dial.shape(depth, vocab), VARIANTS[BASELINE])
            ratio = budget / baseline / _baseline_parameters(scale, depth, vocab)
            if not RATIOS[0] <= ratio <= RATIOS[1]:
                continue
            tokens = budget / flops_per_token(*sized(scale, stack, depth, vocab))
            for seed in range(seeds):
                yield _run(scale, stack, depth, vocab, tokens=tokens, seed=seed, budget=budget)


def _run(
    scale: Scale,
    stack: str,
    depth: int,
    vocab: int,
    *,
    tokens: float,
    seed: int,
    budget: float | None = None,
) -> LadderRun:
    batch = scale.dial.rows(depth) * scale.dial.seq_len
    steps = round(tokens / batch)
    if steps < _LEAST_STEPS:
        raise ConfigError(
            f"{stack!r} at depth {depth} would train {steps} steps of {batch:,} tokens, and a run "
            f"needs at least {_LEAST_STEPS}: raise --tokens-per-parameter or --budgets, or leave "
            "out that depth"
        )
    shape, layers = sized(scale, stack, depth, vocab)
    return LadderRun(
        stack=stack,
        depth=depth,
        series="rung" if budget is None else "isoflop",
        budget=budget,
        seed=seed,
        steps=steps,
        batch_tokens=batch,
        params=layer_parameters(shape, layers),
        flops_per_token=flops_per_token(shape, layers),
        largest=budget is None and depth == max(scale.depths),
    )


def _baseline_parameters(scale: Scale, depth: int, vocab: int) -> int:
    return layer_parameters(scale.dial.shape(depth, vocab), VARIANTS[BASELINE])

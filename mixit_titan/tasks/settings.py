"""Everything a run of a task consists of: the task with its difficulty, the model, the training."""

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.fields import Group
from mixit_titan.files import json_text
from mixit_titan.kernels.mixing import Noise
from mixit_titan.model.mixers.registry import MIXERS
from mixit_titan.model.pairs import OUTER_PARTS, PAIRS, PARTS
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.stack import Stack
from mixit_titan.model.variants import VARIANTS, find_stack, find_variant, unknown_variant
from mixit_titan.options import flag
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, POSITIVE, SEED, Range, check_fields
from mixit_titan.tasks.baselines import BASELINES
from mixit_titan.tasks.lengths import check_test_lengths, longer_tasks
from mixit_titan.tasks.task import Task, task_name

T = TypeVar("T", bound=Task)

EXAMPLES = Range(least=0, most=10**9)
STD = Range(above=0, most=1000)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The model and its training, which are options of every task."""

    variant: Annotated[
        str,
        Group("model"),
        tyro.conf.arg(help=f"{', '.join(VARIANTS)}; or a baseline: {', '.join(BASELINES)}."),
    ] = "standard"
    stack: str | None = None
    """Layers that are not all alike, instead of a variant: "mixit*3 standard"."""
    mixer: Annotated[
        str | None,
        tyro.conf.arg(help=f"A mixer for all layers, instead of a variant: {', '.join(MIXERS)}."),
    ] = None
    freeze: Annotated[
        tuple[str, ...] | None,
        tyro.conf.arg(
            help=f"Parts to freeze instead of the variant's own: {', '.join(PARTS)}. With a "
            f"stack: {', '.join(OUTER_PARTS)}."
        ),
    ] = None
    recipe: str | None = None
    """Recipe of the mixing matrices: paper, or official, which is the default for tasks."""
    noise: Noise = "gaussian"
    """Distribution of the mixing matrices: gaussian, or sign, which takes one random bit per
    element."""
    std: Annotated[float | Literal["width", "heads", "length"] | None, STD] = None
    """Standard deviation of the mixing matrices, instead of the recipe's: a number, width
    (1/sqrt(width length)), heads (one per head, between 1/sqrt(length head_width) and
    1/sqrt(length)) or length (1/sqrt(length))."""
    causal: bool = True
    """--no-causal: the mixing matrices see later tokens too. Only for tasks whose answer is not in
    the sequence, such as yelp."""
    width: Annotated[int, Range(least=1, most=2**16)] = 128
    """Width of the residual stream."""
    layers: Annotated[int, Range(least=1, most=1000)] = 2
    """Number of layers."""
    heads: Annotated[int, Range(least=1, most=2**16)] = 4
    """Query heads, or mixing matrices, per layer."""
    bias: bool = True
    """Use biases on every linear of a layer."""
    init_std: Annotated[float | None, STD] = None
    """Standard deviation of the weights. Default: 1/sqrt(width), which keeps the scale of
    activations the same at any width, or 0.02 if the recipe scales the linears itself."""
    embedding_std: Annotated[float, STD] = 1.0
    """Standard deviation of the embeddings."""
    lr: Annotated[float, POSITIVE, Group("training")] = 1e-3
    """The highest learning rate, reached after the warmup."""
    batch: Annotated[int, Range(least=1, most=2**20)] = 128
    """Examples per step."""
    steps: Annotated[int, Range(least=1, most=2**40)] = 3000
    """Training steps."""
    warmup: Annotated[int, NOT_NEGATIVE] = 100
    """Warmup steps of the learning rate, at most --steps."""
    decay: Literal["cosine", "linear"] = "cosine"
    """How the learning rate falls to 0 after the warmup."""
    weight_decay: Annotated[float, Range(least=0, most=1000)] = 0.0
    """AdamW's weight decay, for matrices only."""
    beta2: Annotated[float, Range(least=0, below=1)] = 0.98
    """AdamW's beta2, the decay of its second moment."""
    clip: Annotated[float, POSITIVE] = 1.0
    """Maximum gradient norm, for clipping."""
    train: Annotated[int, EXAMPLES, Group("data and evaluation")] = 0
    """Number of different training examples; 0: all that exist, or new ones at every step."""
    test: Annotated[int, EXAMPLES] = 2000
    """Number of test examples; 0: all that exist, if they are listed."""
    held_out: Literal["test", "validation"] = "test"
    """The split that is evaluated. `validation`, for choosing settings: one training example in
    eight is held out and evaluated instead of the test set."""
    test_length: Annotated[tuple[int, ...], Range(least=1, most=2**16)] = ()
    """Longer sequences to test on after training, as values of --length or of whatever makes the
    task longer. For models with attention in all layers, and for an LSTM."""
    seed: Annotated[int, SEED] = 0
    """Seed of the data, the initial weights and the mixing matrices."""
    eval_every: Annotated[int, COUNT] = 250
    """Steps between two evaluations on the complete test set, each followed by a checkpoint."""
    target_accuracy: float | None = None
    """Stop at the first evaluation that reaches this accuracy on training-side examples drawn apart
    from the batches. The test set decides nothing."""
    compile: Annotated[bool, Group("speed")] = False
    """Compile the model with torch.compile."""
    bf16: bool = False
    """Run the model under bfloat16 autocast."""

    def check(self) -> None:
        check_fields(self, flag)
        if self.variant not in (*VARIANTS, *BASELINES):
            raise unknown_variant("variant", self.variant, [*VARIANTS, *BASELINES], "--stack")
        self._check_knobs()

    def layer_stack(self) -> Stack | None:
        """Return the stack of the model's layers; None for an LSTM."""
        if self.variant == "lstm":
            return None
        if self.variant == "linear" and self.stack is None and self.mixer is None:
            return find_variant(mixer="linear", freeze=self.freeze)
        # A stack or a mixer replaces a variant that was not named explicitly.
        other = self.stack is not None or self.mixer is not None
        variant = None if other and self.variant == Settings.variant else self.variant
        return find_stack(
            self.layers, stack=self.stack, variant=variant, mixer=self.mixer, freeze=self.freeze
        )

    def named(self) -> "Settings":
        """Return the same settings under a variant's name, if --mixer or --stack describes one in
        other words: `--mixer mixing` and `--stack "mixit mixit"` are `--variant mixit`."""
        if (self.stack is None and self.mixer is None) or self.variant != Settings.variant:
            return self
        try:
            name = find_stack(self.layers, stack=self.stack, mixer=self.mixer).name
        except ConfigError:  # `check` reports it
            return self
        if name not in (*VARIANTS, *BASELINES):
            return self
        # Beside a stack --freeze applies to the model as a whole; otherwise it replaces a variant's
        # own.
        own = self.stack is not None or (name in PAIRS and PAIRS[name].frozen)
        if own and self.freeze is not None:
            return self
        return dataclasses.replace(self, variant=name, stack=None, mixer=None)

    @property
    def name(self) -> str:
        """The name of the model: that of its variant, or of its stack."""
        stack = self.layer_stack()
        return self.variant if stack is None else stack.name

    @property
    def learned_positions(self) -> bool:
        """Whether the model has one learned vector per position, as layers of `random` do. The same
        parts frozen by --freeze have none, as they had none before stacks existed."""
        stack = self.layer_stack()
        written = self.stack is not None and stack is not None and PAIRS["random"] in stack.pairs
        return self.variant == "random" or written

    def _check_knobs(self) -> None:
        """Refuse knobs that the variant does not have."""
        stack = self.layer_stack()
        if stack is None:
            for key in ("freeze", "stack", "mixer"):
                if getattr(self, key) is not None:
                    raise ConfigError(
                        f"--{key}: {self.variant!r} is trained completely, leave it out"
                    )
        mixing = stack is not None and stack.drawn
        for key in ("recipe", "noise", "std", "causal"):
            if getattr(self, key) != getattr(Settings, key) and not mixing:
                raise ConfigError(
                    f"--{'no-' if key == 'causal' else ''}{key} applies only to mixing layers, "
                    f"and {self.name!r} has none: leave it out, or use --variant mixit"
                )
        if self.recipe is not None and self.recipe not in RECIPES:
            raise unknown("recipe", self.recipe, RECIPES)


_LATER = ("noise", "std", "held_out", "stack", "mixer", "test_length")
"""Defaults that the first runs did not record: left out of a description while unchanged."""


@dataclass(frozen=True, kw_only=True)
class Run(Generic[T]):
    """A task with its difficulty, and the settings of its model and training."""

    task: tyro.conf.OmitArgPrefixes[T]
    settings: tyro.conf.OmitArgPrefixes[Settings]

    def check(self) -> None:
        """Refuse impossible combinations in one sentence; tyro, which builds the parts, would print
        more."""
        check_fields(self.task, flag)
        self.task.check()
        self.settings.check()
        if not self.settings.causal and not self.task.may_look_ahead:
            raise ConfigError(
                f"--no-causal: {task_name(self.task)} asks within the sequence, and a matrix that "
                "looks ahead would see the answers; it is for tasks such as yelp"
            )
        check_test_lengths(self)

    @property
    def positions(self) -> int:
        """Positions of the longest sequence that the model is trained or tested on."""
        return max(task.positions for task in (self.task, *longer_tasks(self).values()))

    def named(self) -> "Run":
        """Return the same run with its model under the name of a variant, if it has one."""
        return dataclasses.replace(self, settings=self.settings.named())

    def described(self) -> dict[str, Any]:
        """Return a flat description, ready for JSON."""
        settings = dataclasses.asdict(self.settings)
        for key in _LATER:
            if settings[key] == getattr(Settings, key):
                del settings[key]
        return {"task": task_name(self.task), **dataclasses.asdict(self.task), **settings}

    @property
    def hash(self) -> str:
        text = json_text(self.described(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

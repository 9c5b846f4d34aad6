"""All that a run of a task is made of: the task with its difficulty, the model, the training."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.kernels.mixing import Noise
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.variants import VARIANTS, find_variant
from mixit_titan.options import flag
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, POSITIVE, SEED, Range, check_fields
from mixit_titan.tasks.baselines import BASELINES
from mixit_titan.tasks.task import Task, task_name

T = TypeVar("T", bound=Task)

EXAMPLES = Range(least=0, most=10**9)
STD = Range(above=0, most=1000)


@dataclass(frozen=True, kw_only=True)
class Settings:
    variant: Annotated[
        str, tyro.conf.arg(help=f"{', '.join(VARIANTS)}; or a baseline: {', '.join(BASELINES)}.")
    ] = "standard"
    freeze: tuple[str, ...] | None = None
    """Parts to freeze instead of the variant's own: qk, v, o, mlp, norm, embedding, head."""
    recipe: str | None = None
    """Of the mixing matrices: paper, or official, which is the default for tasks."""
    noise: Noise = "gaussian"
    """Of the mixing matrices: gaussian, or sign, which is one random bit each."""
    causal: bool = True
    """--no-causal: the mixing matrices look ahead too. Only where the answer is not in the
    sequence: yelp."""
    width: Annotated[int, Range(least=1, most=2**16)] = 128
    layers: Annotated[int, Range(least=1, most=1000)] = 2
    heads: Annotated[int, Range(least=1, most=2**16)] = 4
    bias: bool = True
    """Biases on every linear of a layer."""
    init_std: Annotated[float | None, STD] = None
    """Of the weights. Default: 1/sqrt(width), which keeps the size of activations at any width; or
    0.02 where the recipe scales the linears itself."""
    embedding_std: Annotated[float, STD] = 1.0
    lr: Annotated[float, POSITIVE] = 1e-3
    batch: Annotated[int, Range(least=1, most=2**20)] = 128
    steps: Annotated[int, Range(least=1, most=2**40)] = 3000
    warmup: Annotated[int, NOT_NEGATIVE] = 100
    """Steps of a rising learning rate: all of them, if --steps are fewer."""
    decay: Literal["cosine", "linear"] = "cosine"
    """How the learning rate falls to 0 after that."""
    weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
    beta2: Annotated[float, Range(least=0, below=1)] = 0.98
    """Of AdamW: how long it remembers the size of gradients."""
    clip: Annotated[float, Range(above=0, infinite=True)] = 1.0
    """The largest norm of a gradient."""
    train: Annotated[int, EXAMPLES] = 0
    """Different training examples; 0: all that there are, or new ones at every step."""
    test: Annotated[int, EXAMPLES] = 2000
    """Test examples; 0: all that there are, where they are listed."""
    seed: Annotated[int, SEED] = 0
    """Of the data, the initial weights and the mixing matrices."""
    eval_every: Annotated[int, COUNT] = 250
    """Steps between two evaluations on the whole test set, each followed by a checkpoint."""
    target_accuracy: float | None = None
    """Stop as soon as an evaluation reaches it."""
    compile: bool = False
    bf16: bool = False
    """Run the model under bfloat16 autocast."""

    def check(self) -> None:
        check_fields(self, flag)
        if self.variant not in (*VARIANTS, *BASELINES):
            raise unknown("variant", self.variant, [*VARIANTS, *BASELINES])
        self._check_knobs()

    def _check_knobs(self) -> None:
        """Refuse what the variant does not have."""
        if self.variant in BASELINES:
            if self.freeze is not None:
                raise ConfigError(f"--freeze: all of {self.variant!r} is trained, leave it out")
            mixing = False
        else:
            mixing = find_variant(self.variant, freeze=self.freeze).mixer == "mixing"
        for key in ("recipe", "noise", "causal"):
            if getattr(self, key) != getattr(Settings, key) and not mixing:
                raise ConfigError(
                    f"--{'no-' if key == 'causal' else ''}{key} is a knob of the mixing mixer, "
                    f"and {self.variant!r} has none: leave it out, or take --variant mixit"
                )
        if self.recipe is not None and self.recipe not in RECIPES:
            raise unknown("recipe", self.recipe, RECIPES)


@dataclass(frozen=True, kw_only=True)
class Run(Generic[T]):
    task: tyro.conf.OmitArgPrefixes[T]
    settings: tyro.conf.OmitArgPrefixes[Settings]

    def check(self) -> None:
        """Refuse what cannot be, in one sentence; tyro, which makes the parts, would print more."""
        check_fields(self.task, flag)
        self.task.check()
        self.settings.check()
        if not self.settings.causal and not self.task.may_look_ahead:
            raise ConfigError(
                f"--no-causal: {task_name(self.task)} asks within the sequence, and a matrix that "
                "looks ahead would see the answers; it is for tasks such as yelp"
            )

    def described(self) -> dict[str, Any]:
        """A flat description, ready for JSON."""
        settings = dataclasses.asdict(self.settings)
        if settings["noise"] == "gaussian":  # as it was in the first runs, which do not say so
            del settings["noise"]
        return {"task": task_name(self.task), **dataclasses.asdict(self.task), **settings}

    @property
    def hash(self) -> str:
        text = json.dumps(self.described(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

"""The model of a run: the modules used in pretraining, or a baseline, with the task's head."""

import dataclasses
import math
from collections.abc import Iterable

import torch
from torch import nn

from mixit_titan.errors import ConfigError
from mixit_titan.host_memory import check_host_memory
from mixit_titan.model import accounting
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import RECIPES, Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.baselines import Lstm
from mixit_titan.tasks.bottleneck import BottleneckDecoder
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.task import Task

DEFAULT_RECIPE = "official"
"""The recipe behind the published tables."""


class PooledClassifier(nn.Module):
    """A linear head on the mean of the last hidden states, giving one answer per sequence.
    Positions that hold the token `padding` are left out."""

    def __init__(self, body: nn.Module, width: int, classes: int, padding: int | None) -> None:
        super().__init__()
        self.padding = padding
        body.lm_head = None
        self.body = body
        self.classifier = nn.Linear(width, classes)
        nn.init.zeros_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h_BLD = self.body(tokens)
        if self.padding is None:
            return self.classifier(h_BLD.mean(1, keepdim=True))
        word_BL1 = (tokens != self.padding).unsqueeze(-1)
        mean_B1D = (h_BLD * word_BL1).sum(1, keepdim=True) / word_BL1.sum(1, keepdim=True).clamp(1)
        return self.classifier(mean_B1D)


def model_config(run: Run) -> MixitLlama.Config | None:
    """Return the config of a run's Llama without building it, or None for an LSTM. A model that is
    not possible raises an error here already."""
    settings = run.settings
    stack = settings.layer_stack()
    if stack is None:
        return None
    recipe = _recipe(settings) if stack.drawn else Recipe()
    shape = _shape(run, scaled=recipe.linear_scale)
    return llama_config(
        shape,
        stack,
        recipe,
        init_seed=settings.seed,
        mixing_seed=settings.seed,
        attention="sdpa",
        learned_positions=settings.learned_positions,
    )


def build_model(run: Run) -> nn.Module:
    """Build the model on the CPU, at initialization, with its frozen parts without gradients."""
    config = model_config(run)
    if config is not None:
        model = config.build()
        model.init_states()
        freeze(model, config.stack)
    else:
        model = Lstm(_shape(run, scaled=False), run.settings.seed)
    return _with_head(model, run)


def _with_head(model: nn.Module, run: Run) -> nn.Module:
    task, settings = run.task, run.settings
    if task.classes is not None:
        return PooledClassifier(model, settings.width, task.classes, task.padding)
    if task.bottleneck:
        return BottleneckDecoder(
            model,
            width=settings.width,
            tokens=task.token_count,
            positions=run.positions,
            seed=settings.seed,
        )
    return model


def flops_per_token(run: Run) -> float:
    """Return the training FLOPs per token, padding included. A ConfigError for an LSTM."""
    task, stack = run.task, run.settings.layer_stack()
    if stack is None:
        raise ConfigError(f"the FLOPs of {run.settings.name!r} are not counted")
    shape = dataclasses.replace(_shape(run, scaled=False), seq_len=task.positions)
    per_token = accounting.count(shape, stack).flops_per_token
    # A classifier's head has few columns, used once per sequence. Asking how many could read a
    # file.
    if type(task).classes is not Task.classes:
        per_token -= 6 * shape.vocab * shape.width
    return float(per_token)


def check_memory(run: Run) -> None:
    """Refuse a model or a batch that this machine cannot hold in memory."""
    settings = run.settings
    stack = settings.layer_stack() or VARIANTS["standard"]
    shape = _shape(run, scaled=False)
    needed = accounting.least_bytes(shape, stack, rows=settings.batch, seq_len=shape.seq_len)
    if run.task.classes is not None:  # it has no logits over the vocabulary
        needed -= 4 * settings.batch * shape.seq_len * shape.vocab
    check_host_memory(needed, "lower --batch, --width or --layers, or what makes the task larger")


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained."""
    return [param for param in model.parameters() if param.requires_grad]


def count(params: Iterable[nn.Parameter]) -> int:
    """Return the number of elements of some parameters."""
    return sum(param.numel() for param in params)


def _shape(run: Run, *, scaled: bool) -> Shape:
    """Return the shape of a run's model. `scaled`: the linears are multiplied by a factor of their
    own."""
    settings = run.settings
    own_std = 0.02 if scaled else settings.width**-0.5
    return Shape(
        width=settings.width,
        layers=settings.layers,
        heads=settings.heads,
        hidden=4 * settings.width,
        vocab=run.task.token_count,
        seq_len=run.positions,
        bias=settings.bias,
        init_std=own_std if settings.init_std is None else settings.init_std,
        embedding_std=settings.embedding_std,
    )


def _recipe(settings: Settings) -> Recipe:
    name = settings.recipe or DEFAULT_RECIPE
    recipe = RECIPES[name]
    if name == "official":  # the authors' tasks weight residual and branch equally
        recipe = dataclasses.replace(recipe, residual=math.sqrt(0.5))
    if settings.std is not None:
        recipe = dataclasses.replace(recipe, std=settings.std)
    return dataclasses.replace(recipe, noise=settings.noise, causal=settings.causal)

"""The optimizer of a run: torchtitan's, or torch's Muon for the matrices of the layers.

torchtitan 0.3.0 has a Muon of its own (`DistMuon`), which runs on CUDA only and refuses tensor
parallelism. torch's runs anywhere: its products of a sharded matrix are those of a DTensor, which
equal those of the complete matrix.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
import tyro
from torch import nn
from torchtitan.components.optimizer import OptimizersContainer, ParamGroupConfig, default_adamw

from mixit_titan.errors import ConfigError
from mixit_titan.log import logger
from mixit_titan.model.freezing import refreeze
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.phases import Phase, phase_of

MUON = "Muon"
ADAM = {"optimizer": "Adam"}
"""What `kind` returns for everything but Muon."""
_MATRICES = r"\.(attention|feed_forward)\..*w[qkvo123]\.weight$"


@dataclass(frozen=True)
class Group:
    """Weights with a learning rate and a weight decay of their own."""

    pattern: str = ".*"
    """A regular expression for their names."""
    lr_factor: float = 1.0
    weight_decay: float | None = None
    """Default: that of the run."""
    said: str = ""
    """How the config describes the group."""


class Optimizers(OptimizersContainer):
    """torchtitan's optimizers, with phases in which different weights are trained."""

    @dataclass(kw_only=True, slots=True)
    class Config(OptimizersContainer.Config):
        """torchtitan's config, with the phases of training."""

        phases: Annotated[list[Phase], tyro.conf.Suppress] = field(default_factory=list)
        """What is trained when, if that changes in the run."""
        groups: Annotated[list[str], tyro.conf.Suppress] = field(default_factory=list)
        """What [[optimizer.groups]] says, for commands that compare runs."""

    def __init__(self, config: Config, *, model_parts: list[nn.Module]) -> None:
        super().__init__(config, model_parts=model_parts)
        self.phases, self.phase = config.phases, None
        self.begin(1)

    def begin(self, step: int) -> Phase | None:
        """Called before each step. On the first step of a phase, set what is trained, drop the
        optimizer state of what is not, and return the phase. The state of weights that thaw is
        created by their first step."""
        if not self.phases or (phase := phase_of(self.phases, step)) is self.phase:
            return None
        for model in self.model_parts:
            refreeze(model, phase.stack)
        self._drop_state(lambda param: not param.requires_grad)
        self.phase = phase
        return phase

    def expect(self, saved: Collection[str]) -> None:
        """Called before loading a checkpoint that has optimizer state for these weights: it is this
        state that is loaded, whatever the run trains at that step. The state of all others starts
        anew."""
        self._drop_state(lambda param: True)
        missing = 0
        for group in self._groups():
            for name, param in zip(group["param_names"], group["params"], strict=True):
                param.requires_grad_(name in saved)
                missing += name not in saved
        if missing and not self.phases:
            logger.warning(
                f"The checkpoint has no optimizer state for {missing} weights: theirs is new"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state from the checkpoint; learning rates, weight decay and the like stay the
        config's."""
        ours = [{k: v for k, v in group.items() if k != "params"} for group in self._groups()]
        super().load_state_dict(state_dict)
        for group, settings in zip(self._groups(), ours, strict=True):
            group.update(settings)
            for param in group["params"]:
                param.requires_grad_(True)
        self.phase = None  # `begin` sets it

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _drop_state(self, dropped: Callable[[nn.Parameter], bool]) -> None:
        for optimizer in self.optimizers:
            params = [p for group in optimizer.param_groups for p in group["params"]]
            for param in filter(dropped, params):
                param.grad = None
                optimizer.state.pop(param, None)

    @staticmethod
    def _build_param_groups(
        model: nn.Module, param_group_configs: list[ParamGroupConfig], impl_kwargs: dict[str, Any]
    ) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[str]]]:
        """Keep only groups that have a weight here: not every group has one in each stage of a
        pipeline, or both a matrix for Muon and something else."""
        names = [name for name, param in model.named_parameters() if param.requires_grad]
        patterns = [re.compile(group.pattern) for group in param_group_configs]
        first = {next(n for n, p in enumerate(patterns) if p.search(name)) for name in names}
        kept = [group for n, group in enumerate(param_group_configs) if n in first]
        return OptimizersContainer._build_param_groups(model, kept, impl_kwargs)

    @staticmethod
    def _resolve_optimizer_factory(name: str) -> Callable[..., torch.optim.Optimizer]:
        if name == MUON:
            return torch.optim.Muon
        return OptimizersContainer._resolve_optimizer_factory(name)


def optimizer_config(
    name: str,
    *,
    lr: float,
    betas: list[float],
    eps: float,
    weight_decay: float,
    implementation: str,
    groups: Sequence[Group] = (),
    phases: Sequence[Phase] = (),
) -> Optimizers.Config:
    """The optimizer of a run. Muon trains the matrices of attention, mixing and MLP. AdamW trains
    the rest (embedding, head, norms, biases) at the same learning rate, because Muon's step is
    scaled to the size of AdamW's (Moonshot's rule, arXiv:2502.16982). The last group contains what
    no other group does."""
    found = []
    for group in (*groups, Group()):
        decay = weight_decay if group.weight_decay is None else group.weight_decay
        rate = lr * group.lr_factor
        (adam,) = default_adamw(
            lr=rate, betas=tuple(betas), eps=eps, weight_decay=decay
        ).param_groups
        adam.pattern = group.pattern
        if name == MUON:
            settings = {"lr": rate, "weight_decay": decay, "adjust_lr_fn": "match_rms_adamw"}
            settings |= {"fused": False, "foreach": False}  # Muon has neither
            matrices = rf"^(?=.*{_MATRICES})({group.pattern})"
            found.append(
                ParamGroupConfig(pattern=matrices, optimizer_name=MUON, optimizer_kwargs=settings)
            )
        else:
            adam.optimizer_name = name
        found.append(adam)
    return Optimizers.Config(
        param_groups=found,
        implementation=implementation,
        phases=list(phases),
        groups=[group.said for group in groups],
    )


def kind(names: Iterable[str]) -> dict[str, str]:
    """The kind of optimizer as a checkpoint records it: the states of Adam and AdamW are
    interchangeable."""
    return {"optimizer": MUON} if MUON in names else ADAM


def check_muon(model: MixitLlama.Config, pipeline_stages: int) -> None:
    """Raise a ConfigError for a model that leaves nothing to train for Muon, or for AdamW beside
    it."""
    stack = model.stack
    every = all if pipeline_stages > 1 else any  # a stage may contain any of the layers
    trained = [set(pair.parts) - set(pair.frozen) for pair in stack.pairs]
    if not every(parts - {"norm", "matrix"} for parts in trained):
        raise ConfigError(
            f"optimizer.name = 'Muon' has nothing to train, because {stack.name} freezes all "
            f"matrices of {'its' if len(trained) == 1 else 'some'} layers: use 'AdamW'"
        )
    others = {"norm"} if pipeline_stages > 1 else {"norm", "embedding", "head"}
    outer = any(not stack.freezes(part) for part in others - {"norm"})
    if not outer and not every("norm" in parts for parts in trained) and not model.shape.bias:
        raise ConfigError(
            "optimizer.name = 'Muon' needs trained weights besides matrices, for AdamW: "
            f"leave {' or '.join(sorted(others))} out of model.freeze, or use 'AdamW'"
        )

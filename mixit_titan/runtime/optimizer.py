"""The optimizer of a run: torchtitan's, or torch's Muon for the matrices of the layers.

torchtitan 0.3.0 has a Muon of its own (`DistMuon`), which runs on CUDA only and refuses tensor
parallelism. torch's runs anywhere: where a matrix is sharded, its products are those of a DTensor,
which are those of the complete matrix.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torchtitan.components.optimizer import OptimizersContainer, ParamGroupConfig, default_adamw

from mixit_titan.errors import ConfigError
from mixit_titan.model.llama import MixitLlama

MUON = "Muon"
ADAM = {"optimizer": "Adam"}
"""What `kind` says of all but Muon."""
_MATRICES = r"\.(attention|feed_forward)\..*w[qkvo123]\.weight$"


class Optimizers(OptimizersContainer):
    @dataclass(kw_only=True, slots=True)
    class Config(OptimizersContainer.Config):
        pass

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
) -> Optimizers.Config:
    """Muon is for the matrices of attention, mixing and MLP. What it leaves (embedding, head,
    norms, biases) is AdamW's, with the same learning rate: Muon's is adjusted to the size of a step
    of AdamW (Moonshot's rule, arXiv:2502.16982)."""
    groups = default_adamw(
        lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay
    ).param_groups
    if name == MUON:
        settings = {"lr": lr, "weight_decay": weight_decay, "adjust_lr_fn": "match_rms_adamw"}
        settings |= {"fused": False, "foreach": False}  # it has neither
        muon = ParamGroupConfig(pattern=_MATRICES, optimizer_name=MUON, optimizer_kwargs=settings)
        groups.insert(0, muon)
    else:
        groups[0].optimizer_name = name
    return Optimizers.Config(param_groups=groups, implementation=implementation)


def kind(names: Iterable[str]) -> dict[str, str]:
    """What a checkpoint says of the state of its optimizers: that of Adam and AdamW is alike."""
    return {"optimizer": MUON} if MUON in names else ADAM


def check_muon(model: MixitLlama.Config, pipeline_stages: int) -> None:
    """Refuse a model that leaves Muon, or AdamW beside it, nothing to train: a ConfigError."""
    stack = model.stack
    every = all if pipeline_stages > 1 else any  # a stage may have any of the layers
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
            "optimizer.name = 'Muon' needs something beside matrices that is trained, for AdamW: "
            f"leave {' or '.join(sorted(others))} out of model.freeze, or use 'AdamW'"
        )

"""torchtitan's pipeline parallelism, made to run on torch 2.13 as well."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining.schedules import _PipelineSchedule
from torchtitan.distributed.pipeline_parallel import pipeline_llm


def pipeline(
    model: nn.Module, **settings: Any
) -> tuple[_PipelineSchedule, list[nn.Module], bool, bool]:
    """Split the model into stages. Each stage draws the mixing matrices of its own layers, and only
    the first has the position embedding."""
    schedule, *rest = pipeline_llm(model, **settings)
    if "arg_mbs" not in inspect.signature(type(schedule).step).parameters:
        schedule.step = _whole_batch_step(schedule.step)
    return schedule, *rest


def _whole_batch_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """torchtitan 0.3.0 passes a list of microbatches; the schedules of torch 2.13 take a batch and
    split it themselves."""

    def step_microbatches(
        *,
        arg_mbs: list[tuple[torch.Tensor, ...]] | None,
        kwarg_mbs: list[dict[str, torch.Tensor]],
        target_mbs: list[torch.Tensor] | None,
        **settings: Any,
    ) -> Any:
        args = [torch.cat(tensors) for tensors in zip(*arg_mbs or [], strict=True)]
        kwargs = {key: torch.cat([mb[key] for mb in kwarg_mbs]) for key in kwarg_mbs[0]}
        target = None if target_mbs is None else torch.cat(target_mbs)
        return step(*args, **kwargs, **settings | {"target": target})

    return step_microbatches

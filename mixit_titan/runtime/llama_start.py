"""Initializes any stack from the weights of a Hugging Face Llama.

Layers that attend take all weights of a layer. Layers that mix take its values, outputs, MLP and
norms; if the key and value heads are grouped, each head takes the values that it attends to in the
Llama:

    value head of the Llama     0  1
    head that mixes             0  0  1  1
"""

import re
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Replicate

from mixit_titan.log import logger
from mixit_titan.model.hugging_face import HuggingFaceAdapter, has_counterpart
from mixit_titan.runtime.tensor_reader import PlainPlanner


def read_llama(
    adapter: HuggingFaceAdapter, folder: str, state_dict: dict[str, Any]
) -> dict[str, Any]:
    """`state_dict`, a model's own tensors however they are sharded, with the values of a Llama.
    What has no counterpart in a Llama keeps its value and is logged."""
    reader = adapter.get_hf_storage_reader(folder)
    sizes = {name: t.size for name, t in reader.read_metadata().state_dict_metadata.items()}
    ours = adapter.to_hf(state_dict)
    head_dim = adapter.model_config.shape.head_dim
    mixed = adapter.to_hf({k: v for k, v in state_dict.items() if ".attention.wv." in k})
    grouped = {
        name: torch.empty(sizes[name], dtype=tensor.dtype, device=tensor.device)
        for name, tensor in mixed.items()
        if name in sizes and _is_grouped(sizes[name], tensor.shape, head_dim)
    }
    dcp.load(ours | grouped, storage_reader=reader, planner=PlainPlanner())
    for name, theirs in grouped.items():
        _spread(theirs, ours[name], head_dim)
    _log_the_rest(folder, state_dict)
    return state_dict | adapter.from_hf(ours)


def _is_grouped(theirs: torch.Size, ours: torch.Size, head_dim: int) -> bool:
    """Whether a value weight or bias has fewer heads than ours. Any other difference is left to DCP
    to report."""
    fewer = 0 < theirs[0] < ours[0] and theirs[1:] == ours[1:]
    return fewer and theirs[0] % head_dim == 0 and ours[0] % theirs[0] == 0


@torch.no_grad()
def _spread(theirs: torch.Tensor, ours: torch.Tensor, head_dim: int) -> None:
    """Fill `ours`, a value weight or bias of all heads, with the value head of each head's
    group."""
    groups = theirs.unflatten(0, (-1, head_dim))
    full = groups.repeat_interleave(ours.shape[0] // theirs.shape[0], 0).flatten(0, 1)
    if isinstance(ours, DTensor):
        mesh = ours.device_mesh
        full = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
    ours.copy_(full)


def _log_the_rest(folder: str, state_dict: dict[str, Any]) -> None:
    kept = [re.sub(r"\.\d+\.", ".*.", name) for name in state_dict if not has_counterpart(name)]
    if kept:
        said = ", ".join(f"{name} ({kept.count(name)})" for name in dict.fromkeys(kept))
        logger.info(f"{folder} has no counterpart for these, which stay at initialization: {said}")

"""The ranks of an evaluation: they share the batches, and the first one speaks."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from mixit_titan.device import has_gpu, local_device
from mixit_titan.evaluation.likelihood import ALONE, Share
from mixit_titan.runtime.launch import leave_process_group


@contextmanager
def joined(world_size: int) -> Iterator[Share]:
    """The share of this rank, which torchrun or srun has started, as long as all are together."""
    if world_size == 1:
        yield ALONE
        return
    if has_gpu():
        torch.cuda.set_device(local_device())
    dist.init_process_group("gloo")  # figures are exchanged on the host
    yield Share(dist.get_rank(), world_size, group=dist.group.WORLD)
    leave_process_group()

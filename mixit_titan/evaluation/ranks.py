"""The ranks of an evaluation, which share the batches; only the first one prints."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from mixit_titan.device import has_gpu, local_device
from mixit_titan.evaluation.likelihood import ALONE, Share
from mixit_titan.runtime.launch import leave_process_group


@contextmanager
def joined(world_size: int) -> Iterator[Share]:
    """Join the ranks that torchrun or srun started; yields the share of this one."""
    if world_size == 1:
        yield ALONE
        return
    if has_gpu():
        torch.cuda.set_device(local_device())
    dist.init_process_group("gloo")  # results are exchanged on the host
    yield Share(dist.get_rank(), world_size, group=dist.group.WORLD)
    leave_process_group()

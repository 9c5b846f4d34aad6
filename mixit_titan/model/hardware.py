"""Data sheets of the GPUs that a run can be estimated for."""

from dataclasses import dataclass

from mixit_titan.errors import unknown

GIB = 2**30
GPUS_PER_NODE = 8
NETWORK = 50e9
"""Bytes per second that each GPU of a node can receive from other nodes, through a 400 Gb/s
adapter."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The data sheet of one GPU."""

    name: str
    memory: int
    """Bytes as torch reports them, somewhat below the nominal size."""
    flops: float
    """Peak dense bfloat16 FLOPs per second."""
    bandwidth: float
    """Bytes per second of its memory."""
    link: float
    """Bytes per second that it can receive from the other GPUs of its node."""
    lanes: float
    """Instructions per second over all threads: multiprocessors x 128 x clock."""

    @property
    def cache(self) -> float:
        """Bytes per second from the L2 cache into all multiprocessors, at 24 bytes per cycle each:
        5.6 TB/s on an H100. No data sheet gives it."""
        return 24 / 128 * self.lanes

    @property
    def available(self) -> int:
        return available(self.memory)


def available(memory: int) -> int:
    """Return the memory of a GPU that is left for tensors. 2 GiB go to CUDA's context (about 0.5
    GiB), NCCL's buffers (a few MiB for each channel and peer: up to 1 GiB) and cuBLAS workspaces;
    5% go to fragmentation and to what `model/memory.py` does not count."""
    return int(0.95 * memory) - 2 * GIB


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            name="H100",  # SXM, 80 GB
            memory=int(79.1 * GIB),
            flops=989e12,
            bandwidth=3.35e12,
            link=450e9,
            lanes=132 * 128 * 1.755e9,
        ),
        Gpu(
            name="H200",
            memory=int(139.7 * GIB),
            flops=989e12,
            bandwidth=4.8e12,
            link=450e9,
            lanes=132 * 128 * 1.755e9,
        ),
        Gpu(
            name="B200",
            memory=int(178.3 * GIB),
            flops=2250e12,
            bandwidth=8e12,
            link=900e9,
            lanes=148 * 128 * 1.85e9,
        ),
        Gpu(
            name="A100",  # SXM, 80 GB
            memory=int(79.1 * GIB),
            flops=312e12,
            bandwidth=2.04e12,
            link=300e9,
            lanes=108 * 128 * 1.41e9,
        ),
    )
}


def find_gpu(name: str) -> Gpu:
    """Return the data sheet of a GPU by name; an unknown name is a ConfigError."""
    if name.upper() not in GPUS:
        meant = [gpu for gpu in GPUS if gpu[0] in name.upper()]  # a V100 is not an H100
        raise unknown("GPU", name, GPUS, meant=meant)
    return GPUS[name.upper()]

"""Standard normals as a pure function of (seed, name, element), used for initial weights."""

import hashlib

import torch

from mixit_titan.kernels.philox import normals, philox

# Counters drawn at a time: as many as fit a CPU's cache; on a GPU, enough to hide launches.
_AT_A_TIME = {"cpu": 1 << 16, "cuda": 1 << 22}


def named_words(seed: int, name: str, counter: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the generator's integers behind elements 4 counter to 4 counter + 3 of `name`."""
    digest = hashlib.sha256(name.encode()).digest()
    c2, c3 = (int.from_bytes(digest[i : i + 4], "little") for i in (0, 4))
    return philox(seed, counter & 0xFFFFFFFF, counter >> 32, c2, c3)


def draw_normal(seed: int, name: str, shape: torch.Size, device: torch.device) -> torch.Tensor:
    """Return standard normals in float32: element e of `name` is word e % 4 of counter e // 4."""
    count = -(-shape.numel() // 4)
    flat = torch.empty(count, 4, device=device)
    chunk = _AT_A_TIME[device.type]
    for start in range(0, count, chunk):
        counter = torch.arange(start, min(start + chunk, count), device=device)
        words = named_words(seed, name, counter)
        torch.stack(normals(words), dim=-1, out=flat[start : start + chunk])
    return flat.view(-1)[: shape.numel()].view(shape)

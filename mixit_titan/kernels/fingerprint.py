"""Fingerprints that stand for mixing matrices and maps, which are not saved: hashes of the integers
behind them."""

import hashlib
from collections.abc import Iterable

import torch

from mixit_titan.kernels.maps import map_names
from mixit_titan.kernels.mixing import MatrixSpec, draw_words
from mixit_titan.kernels.named_normals import named_words


def fingerprint(spec: MatrixSpec, layers: Iterable[int], head: int) -> str:
    """Return a hash of the generator's integers behind the first and last rows of a head's
    matrices. It changes if the generator changes, as it does if the seed changes."""
    digest = hashlib.sha256()
    rows = torch.tensor([0, spec.length - 1], device="cpu")
    for layer in layers:
        for word in draw_words(spec.noise, spec.seed, layer, head, rows, spec.length):
            digest.update(word.numpy().tobytes())
    return digest.hexdigest()[:16]


def maps_fingerprint(seed: int, layers: Iterable[int], elements: int) -> str:
    """Return the same for the maps of the embedding mixer, whose queries and keys in a layer have
    the same number of elements: a hash of the integers behind the first and the last ones."""
    digest = hashlib.sha256()
    ends = torch.tensor([0, (elements - 1) // 4], device="cpu")
    for layer in layers:
        for name in map_names(layer):
            for word in named_words(seed, name, ends):
                digest.update(word.numpy().tobytes())
    return digest.hexdigest()[:16]

"""Our weights at initialization against a second implementation of their draws (numpy_philox.py).

The mixing matrices, which come from the same generator, are in test_numpy.py.
"""

import dataclasses

import numpy as np
import pytest

from mixit_titan.model.build import llama_config
from mixit_titan.model.variants import VARIANTS

from .conftest import TINY
from .numpy_philox import initial_normals, philox


def test_numpys_generator_gives_the_published_answers() -> None:
    """Of philox4x32-10 in the Random123 distribution: the digits of pi as counter and key."""
    words = philox(0x299F31D0A4093822, 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert [int(word) for word in words] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("variant", ["standard", "mixit"])
def test_initial_weights(variant: str, tied: bool) -> None:
    """N(0, std^2) from (seed, name, element); biases 0 and norms 1. A tied weight goes by the
    embedding's name and has the head's deviation."""
    seed = 2**33 + 5
    shape = dataclasses.replace(TINY, bias=True, tied=tied, init_std=0.05, embedding_std=0.7)
    model = llama_config(shape, VARIANTS[variant], init_seed=seed).build()
    model.init_states()
    for name, weight in model.named_parameters():
        if name.endswith(".bias") or "norm" in name:
            assert (weight == (0.0 if name.endswith(".bias") else 1.0)).all(), name
            continue
        tied_embedding = tied and name == "tok_embeddings.weight"
        std = 0.7 if "tok_embeddings" in name and not tied_embedding else 0.05
        expected = std * initial_normals(seed, name, tuple(weight.shape))
        # The uniforms are the same; cosine and logarithm are float32 in ours.
        assert np.abs(weight.detach().numpy() - expected).max() < 3e-6 * std, name

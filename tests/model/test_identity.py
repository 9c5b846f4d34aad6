"""What a checkpoint records about the maps of the embedding mixer, which it does not contain."""

import hashlib

import numpy as np
import pytest

from mixit_titan.model.build import llama_config
from mixit_titan.model.identity import FINGERPRINTS, differences, identity
from mixit_titan.model.stack import read_stack

from .conftest import TINY
from .numpy_philox import philox

MAPS = "fingerprint of the maps"


def described(stack: str, seed: int = 5) -> dict:
    return identity(llama_config(TINY, read_stack(stack, 2), mixing_seed=seed))


def by_hand(seed: int, layers: list[int]) -> str:
    """The words behind the first and the last four elements of q and of k."""
    digest, last = hashlib.sha256(), TINY.width * TINY.seq_len // 4 - 1
    for layer in layers:
        for name in (f"layers.{layer}.maps.q", f"layers.{layer}.maps.k"):
            hashed = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], dtype="<u4")
            for word in philox(seed, [0, last], 0, *hashed):
                digest.update(word.astype("<i8").tobytes())
    return digest.hexdigest()[:16]


def test_maps_have_a_fingerprint_of_their_integers() -> None:
    assert described("embedding")[MAPS] == by_hand(5, [0, 1])
    assert described("standard embedding", 6)[MAPS] == by_hand(6, [1])
    assert {*FINGERPRINTS} < described("mixit embedding").keys()
    assert not {*FINGERPRINTS} & described("uniform standard").keys()


def test_another_generator_of_the_maps_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = described("embedding")
    assert differences(saved, described("embedding"), ignore=set()) == []
    seeds = differences(saved, described("embedding", 6), ignore=set())
    assert seeds == ["model.mixing.seed is 5 there and 6 here"]
    monkeypatch.setattr(
        "mixit_titan.kernels.fingerprint.named_words", lambda seed, name, ends: (ends + 1,)
    )
    (said,) = differences(saved, described("embedding"), ignore=set())
    assert said.startswith(f"{MAPS} is '{by_hand(5, [0, 1])}' there and '")


def test_the_first_checkpoints_with_maps_still_load() -> None:
    saved = {key: value for key, value in described("embedding").items() if key != MAPS}
    assert differences(saved, described("embedding"), ignore=set()) == []

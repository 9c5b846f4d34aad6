import numpy as np
import pytest
import torch

from mixit_titan.kernels.philox import normals, philox, uniform

# Known answers of the Random123 distribution for philox4x32-10: counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: tuple, key: tuple, expected: tuple) -> None:
    words = philox(key[0] | key[1] << 32, *(torch.tensor(c) for c in counter))
    assert tuple(int(word) for word in words) == expected


def test_normals_are_box_muller() -> None:
    words = philox(7, torch.arange(20000), 1, 2, 3)
    n1, n2, n3, n4 = (n.double().numpy() for n in normals(words))
    for (first, second), (a, b) in {(0, 1): (n1, n2), (2, 3): (n3, n4)}.items():
        # The words as signed 32-bit numbers, folded to [0, 2**31): what tl.rand does.
        signed = [words[i].numpy().astype(np.uint32).view(np.int32) for i in (first, second)]
        u, w = (np.where(s < 0, ~s, s) / 2.0**31 for s in signed)
        radius = np.sqrt(-2 * np.log(np.maximum(u, 1e-7)))
        assert np.abs(a - radius * np.cos(2 * np.pi * w)).max() < 1e-5
        assert np.abs(b - radius * np.sin(2 * np.pi * w)).max() < 1e-5
    every = np.concatenate([n1, n2, n3, n4])
    error = 1 / np.sqrt(len(every))
    assert abs(every.mean()) < 5 * error
    assert abs(every.std() - 1) < 5 * error
    assert abs(np.mean(every**4) - 3) < 5 * np.sqrt(96) * error


def test_uniform_covers_the_unit_interval() -> None:
    words = torch.tensor([0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
    assert torch.allclose(uniform(words), torch.tensor([0.0, 1.0, 1.0, 0.0]))

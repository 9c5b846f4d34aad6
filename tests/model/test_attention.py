import torch
from torchtitan.models.common import CosSinRoPE

from mixit_titan.model.attention import HalvesRoPE


def test_turning_by_halves_is_torchtitans_rotation_bit_by_bit() -> None:
    """Values and gradients, also at given positions."""
    for positions in (None, torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4], [5, 6, 7, 0, 0, 1, 2, 3]])):
        found = []
        for rope in (CosSinRoPE, HalvesRoPE):
            turn = rope(rope.Config(dim=16, max_seq_len=8))
            turn.init_states()
            generator = torch.Generator().manual_seed(1)
            query, key, grad = (torch.randn(2, 8, 4, 16, generator=generator) for _ in range(3))
            query.requires_grad_()
            outputs = turn(query, key, positions)
            outputs[0].backward(grad)
            found.append((*outputs, query.grad))
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

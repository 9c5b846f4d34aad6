import pytest
import torch
from torchtitan.models.common import CosSinRoPE
from torchtitan.models.common.attention import VarlenAttention
from torchtitan.tools import utils

from mixit_titan.errors import ConfigError
from mixit_titan.model.mixers.attention import HalvesRoPE, attention_backend
from mixit_titan.model.shapes import ROPE_SCALING


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


def test_scaled_frequencies_are_those_of_transformers() -> None:
    """Llama 3.2's, over as many positions as it has."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    scaling = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, **ROPE_SCALING}
    config = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=2, rope_parameters=scaling
    )
    positions = torch.arange(20_000)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    rope = HalvesRoPE.Config(
        dim=64,
        max_seq_len=len(positions),
        theta=500000.0,
        scaling="llama",
        scaling_factor=32.0,
        **ROPE_SCALING,
    ).build()
    expected = torch.cat([cos[0], sin[0]], dim=-1)
    torch.testing.assert_close(rope.cache, expected, atol=2e-3, rtol=0)
    plain = HalvesRoPE.Config(dim=64, max_seq_len=len(positions), theta=500000.0).build()
    assert (plain.cache - rope.cache).abs().max() > 1  # it makes a difference


@pytest.mark.parametrize(("capability", "module"), [((9, 0), "FA3"), ((10, 0), "FA4")])
def test_varlen_says_which_package_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], module: str
) -> None:
    """An H100 takes FlashAttention 3 and a B200 4, neither of which any dependency brings."""
    monkeypatch.setattr(
        "torchtitan.tools.utils.has_cuda_capability", lambda *asked: capability >= asked
    )
    with pytest.raises(ConfigError, match=r"'varlen' needs the package flash_attn\S* on this GPU"):
        attention_backend("varlen", on_gpu=True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert isinstance(attention_backend("varlen", on_gpu=True), VarlenAttention.Config)
    assert module == utils.get_cuda_flash_attention_impl()

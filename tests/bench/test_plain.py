import pytest
import torch

from mixit_titan.bench.plain import PlainLlama
from mixit_titan.model.build import llama_config
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS

NAMES = {
    "embedding.": "tok_embeddings.",
    "blocks.": "layers.",
    "attention.wo": "attention.wo",
    "attention.w": "attention.qkv_linear.w",
    "mlp_norm": "ffn_norm",
    "head.": "lm_head.",
}


def our_name(name: str) -> str:
    for theirs, ours in NAMES.items():
        if theirs == "attention.wo" and theirs in name:
            break
        name = name.replace(theirs, ours)
    return (
        name.replace(".w1", ".feed_forward.w1")
        .replace(".w2", ".feed_forward.w2")
        .replace(".w3", ".feed_forward.w3")
    )


@pytest.mark.parametrize("kv_heads", [None, 2])
def test_the_plain_llama_is_the_same_model_as_standard(kv_heads: int | None) -> None:
    """It is a fair yardstick: the same parameters give the same logits."""
    shape = Shape(
        width=32, layers=2, heads=4, kv_heads=kv_heads, hidden=64, vocab=48, seq_len=16, bias=True
    )
    ours = llama_config(shape, VARIANTS["standard"]).build()
    ours.init_weights(buffer_device=None)
    plain = PlainLlama(shape)
    weights = {our_name(name): param for name, param in plain.named_parameters()}
    assert weights.keys() == dict(ours.named_parameters()).keys()
    with torch.no_grad():
        for name, param in ours.named_parameters():
            torch.nn.init.normal_(param, std=0.2, generator=torch.Generator().manual_seed(1))
            weights[name].copy_(param)
    tokens = torch.randint(48, (2, 16), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(plain(tokens), ours(tokens))

"""The variants that attend, in the words of Hugging Face's Llama: it is the same model."""

import re
from typing import Any

import torch

from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe

# The halves of a head rotate as in Hugging Face's Llama (model/rope.py): no weight is permuted.
_NAMES = {
    r"^tok_embeddings\.": "model.embed_tokens.",
    r"^norm\.": "model.norm.",
    r"^layers\.": "model.layers.",
    r"\.attention\.qkv_linear\.w([qkv])\.": r".self_attn.\1_proj.",
    r"\.attention\.wo\.": ".self_attn.o_proj.",
    r"\.feed_forward\.w1\.": ".mlp.gate_proj.",
    r"\.feed_forward\.w2\.": ".mlp.down_proj.",
    r"\.feed_forward\.w3\.": ".mlp.up_proj.",
    r"\.attention_norm\.": ".input_layernorm.",
    r"\.ffn_norm\.": ".post_attention_layernorm.",
}


def llama_weights(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {_llama_name(name): tensor for name, tensor in weights.items()}


def _llama_name(name: str) -> str:
    for pattern, replacement in _NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name


def llama_config(model: MixitLlama.Config) -> dict[str, Any]:
    """config.json"""
    assert model.recipe == Recipe(), "a recipe's scales are for the mixing mixer"
    shape = model.shape
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": shape.vocab,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads or shape.heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.seq_len,
        "rms_norm_eps": shape.norm_eps,
        "tie_word_embeddings": shape.tied,
        "attention_bias": shape.bias,
        "mlp_bias": shape.bias,
        "hidden_act": "silu",
        # Transformers 4 reads the first, 5 the second.
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
    }

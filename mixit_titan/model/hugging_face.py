"""Maps our weights to the names of Hugging Face's Llama; a model with attention in all layers is
one.

`export` uses it to write such a model, and torchtitan's `checkpoint.initial_load_in_hf` and
`last_save_in_hf` to read and write one. For any other stack, the parts it shares with a Llama can
be read: layers with attention as they are, and of layers that mix the values, outputs, MLPs and
norms.
"""

import re
from typing import Any

from torchtitan.protocols.state_dict_adapter import StateDictAdapter

from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import ROPE_SCALING, Shape

# The halves of a head rotate as in Hugging Face's Llama (attention.py), so no weight is permuted.
_NAMES = {
    "tok_embeddings": "model.embed_tokens",
    "norm": "model.norm",
    "lm_head": "lm_head",
    "layers.{}.attention.qkv_linear.wq": "model.layers.{}.self_attn.q_proj",
    "layers.{}.attention.qkv_linear.wk": "model.layers.{}.self_attn.k_proj",
    "layers.{}.attention.qkv_linear.wv": "model.layers.{}.self_attn.v_proj",
    "layers.{}.attention.wv": "model.layers.{}.self_attn.v_proj",
    "layers.{}.attention.wo": "model.layers.{}.self_attn.o_proj",
    "layers.{}.feed_forward.w1": "model.layers.{}.mlp.gate_proj",
    "layers.{}.feed_forward.w2": "model.layers.{}.mlp.down_proj",
    "layers.{}.feed_forward.w3": "model.layers.{}.mlp.up_proj",
    "layers.{}.attention_norm": "model.layers.{}.input_layernorm",
    "layers.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
}
_NO_COUNTERPART = re.compile(r"\.position_weight$|\.inner_attention\.weight$")
_LAYER = re.compile(r"(?<=layers\.)\d+")


class HuggingFaceAdapter(StateDictAdapter):
    """Converts between our state dict and Hugging Face's, for torchtitan's checkpointer."""

    def __init__(self, model_config: MixitLlama.Config, hf_assets_path: str | None = None) -> None:
        """Ignore the path: torchtitan would look there for an index of files, and ours holds a
        tokenizer."""
        self.model_config, self.hf_assets_path = model_config, hf_assets_path
        self.fqn_to_index_mapping = None

    def to_hf(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return what a Llama also has, under its names. A tied head appears once, under the
        embedding's."""
        tied = self.model_config.shape.tied
        return {
            _their_name(name): value
            for name, value in state_dict.items()
            if has_counterpart(name) and not (tied and name == "lm_head.weight")
        }

    def from_hf(self, hf_state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return our weights from a Llama's, under our names."""
        state_dict = {self._our_name(name): value for name, value in hf_state_dict.items()}
        if self.model_config.shape.tied:
            state_dict["lm_head.weight"] = state_dict["tok_embeddings.weight"]
        return state_dict

    def _our_name(self, theirs: str) -> str:
        """Return our name for a Llama's weight; a KeyError if no Llama has that name."""
        module, _, kind = theirs.rpartition(".")
        layer = _LAYER.search(module)
        number = layer[0] if layer else ""
        mixes = layer is not None and not self.model_config.stack.pair(int(number)).attends
        other = "layers.{}.attention." + ("qkv_linear.wv" if mixes else "wv")  # the other kind
        back = {name: ours for ours, name in _NAMES.items() if ours != other}
        return f"{back[_LAYER.sub('{}', module)].format(number)}.{kind}"


def has_counterpart(name: str) -> bool:
    """Return whether a Llama has a corresponding weight: it has no learned positions or
    matrices."""
    return _NO_COUNTERPART.search(name) is None


def _their_name(ours: str) -> str:
    """Map `layers.3.attention.wo.bias` to `model.layers.3.self_attn.o_proj.bias`; a KeyError for a
    name that the model does not have."""
    module, _, kind = ours.rpartition(".")
    layer = _LAYER.search(module)
    return f"{_NAMES[_LAYER.sub('{}', module)].format(layer[0] if layer else '')}.{kind}"


def hf_config(model: MixitLlama.Config, end_of_text: int | None) -> dict[str, Any]:
    """Return config.json for a model with attention in all layers; `end_of_text` is a token id."""
    assert model.recipe == Recipe(), "a recipe's scales are for the mixing mixer"
    shape = model.shape
    rope = hf_rope(shape)
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **hf_sizes(shape),
        "bos_token_id": None,
        "eos_token_id": end_of_text,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.seq_len,
        "attention_bias": shape.bias,
        "mlp_bias": shape.bias,
        "hidden_act": "silu",
        # Transformers 4 reads the first two, Transformers 5 the last.
        "rope_theta": shape.rope_theta,
        "rope_scaling": scaling if shape.rope_factor != 1 else None,
        "rope_parameters": rope,
    }


def hf_rope(shape: Shape) -> dict[str, Any]:
    """Return the rotary embeddings of a model under the keys of Transformers 5."""
    if shape.rope_factor == 1:
        return {"rope_type": "default", "rope_theta": shape.rope_theta}
    scaling = {"rope_type": "llama3", "factor": shape.rope_factor, **ROPE_SCALING}
    return scaling | {"rope_theta": shape.rope_theta}


def hf_sizes(shape: Shape) -> dict[str, Any]:
    """Return the sizes of a model under Hugging Face's keys."""
    return {
        "vocab_size": shape.vocab,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads or shape.heads,
        "rms_norm_eps": shape.norm_eps,
        "tie_word_embeddings": shape.tied,
    }


_KEYS = dict(
    zip(
        hf_sizes(Shape(width=1, layers=1, heads=1, hidden=1, vocab=1, seq_len=1)),
        ("vocab", "width", "hidden", "layers", "heads", "kv_heads", "norm_eps", "tied"),
        strict=True,
    )
)
"""Maps Hugging Face's key to the key of [model]."""


def differences_to_llama(theirs: dict[str, Any], model: MixitLlama.Config) -> list[str]:
    """Say `model.width is 768 but the Llama has 2048` for each key of [model] that differs from a
    Hugging Face model's config.json."""
    shape, recipe, heads = model.shape, model.recipe, theirs.get("num_attention_heads")
    wanted = {"num_key_value_heads": heads, "tie_word_embeddings": False} | theirs
    compared = [(_KEYS[word], ours, wanted.get(word)) for word, ours in hf_sizes(shape).items()]
    compared += [
        ("bias", shape.bias, bool(theirs.get("attention_bias"))),
        ("bias", shape.bias, bool(theirs.get("mlp_bias"))),
        ("width / model.heads", shape.head_dim, theirs.get("head_dim") or shape.head_dim),
        ("mixing.activation", recipe.activation, theirs.get("hidden_act", "silu")),
        ("mixing.residual", recipe.residual, "plain"),
        ("mixing.depth_alpha", recipe.depth_alpha, 0.0),
        ("mixing.linear_scale", recipe.linear_scale, False),
    ]
    if model.stack.attends:
        rope = theirs.get("rope_parameters") or theirs.get("rope_scaling") or {}
        theta = rope.get("rope_theta", theirs.get("rope_theta", 1e4))
        compared.append(("rope_theta", shape.rope_theta, theta))
        compared.append(("rope_factor", shape.rope_factor, _factor(rope)))
    else:  # a layer that mixes has no keys to group
        compared = [entry for entry in compared if entry[0] != "kv_heads"]
    found = [entry for entry in compared if entry[1] != entry[2]]
    said = [f"model.{key} is {ours!r} but the Llama has {their!r}" for key, ours, their in found]
    return list(dict.fromkeys(said))


def _factor(rope: dict[str, Any]) -> float | str:
    """Return Llama 3.1's scaling factor, or 1 without scaling; an unknown kind of scaling is
    returned as text, so that the message shows it."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return 1.0
    same = all(rope.get(key) == value for key, value in ROPE_SCALING.items())
    return float(rope["factor"]) if kind == "llama3" and same else f"{rope}"

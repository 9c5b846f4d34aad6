"""Decoding one token at a time: past keys and values are cached, and only new rows are computed.

Shapes: B batch, T new tokens, L all tokens, D width, N heads, H head width, V vocabulary.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torchtitan.models.common.attention import BaseAttention, GQAttention

from mixit_titan.errors import ConfigError
from mixit_titan.kernels.generated import Rows
from mixit_titan.kernels.matrices import MixingMatrices
from mixit_titan.kernels.stored import identity_apart, stored_rows
from mixit_titan.model.limits import too_long
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.mixers.positional import Positional
from mixit_titan.model.mixing_attention import MixingAttention, PositionedEmbedding


class Decoder:
    """Computes the logits of new tokens from cached keys and values, equal to those of a forward
    pass over the complete sequence."""

    def __init__(self, model: MixitLlama) -> None:
        if model.config.stack.mixes and not model.config.recipe.causal:
            raise ConfigError("decoding from cached values needs a causal model")
        self.model, self.length = model, 0
        self.layers = [(block, _past(block.attention)) for block in model.layers.values()]

    @torch.no_grad()
    def step(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, V) of tokens that follow those of the earlier steps."""
        model, end = self.model, self.length + tokens_BT.shape[1]
        if end > model.config.max_seq_len:
            raise too_long(end, model.config.max_seq_len)
        positions_T = torch.arange(self.length, end, device=tokens_BT.device)
        if isinstance(model.tok_embeddings, PositionedEmbedding):
            h_BTD = model.tok_embeddings(tokens_BT, positions=positions_T)
        else:
            h_BTD = model.tok_embeddings(tokens_BT)
        for block, past in self.layers:
            h_BTD = block.add(h_BTD, past.attend(block.attention_norm(h_BTD), positions_T))
            h_BTD = block.add(h_BTD, block.feed_forward(block.ffn_norm(h_BTD)))
        self.length = end
        return model.lm_head(model.norm(h_BTD))


class KeysAndValues:
    """Caches the keys and values of one attention layer."""

    def __init__(self, attention: GQAttention) -> None:
        self.attention = attention
        self.keys_BLNH: torch.Tensor | None = None
        self.values_BLNH: torch.Tensor | None = None

    def attend(self, x_BTD: torch.Tensor, positions_T: torch.Tensor) -> torch.Tensor:
        """Append the new keys and values, and attend from the new queries to all that they see."""
        attention = self.attention
        q_BTNH, k_BTNH, v_BTNH = attention.qkv_linear(x_BTD)
        q_BTNH, k_BTNH = attention.rope(q_BTNH, k_BTNH, positions_T.unsqueeze(0))
        self.keys_BLNH = _append(self.keys_BLNH, k_BTNH)
        self.values_BLNH = _append(self.values_BLNH, v_BTNH)
        columns_L = torch.arange(self.keys_BLNH.shape[1], device=x_BTD.device)
        out_BNTH = F.scaled_dot_product_attention(
            q_BTNH.transpose(1, 2),
            self.keys_BLNH.transpose(1, 2),
            self.values_BLNH.transpose(1, 2),
            attn_mask=self._seen(positions_T.unsqueeze(1) - columns_L),
            scale=attention.scaling,
            enable_gqa=attention.enable_gqa,
        )
        return attention.wo(out_BNTH.transpose(1, 2).flatten(2))

    def _seen(self, apart_TL: torch.Tensor) -> torch.Tensor:
        """Return which keys each query sees, given their distance to it."""
        window = getattr(self.attention.inner_attention, "window", apart_TL.shape[1])
        return (apart_TL >= 0) & (apart_TL < window)


class MixedValues:
    """Caches the values of one layer that mixes by position."""

    def __init__(self, attention: MixingAttention) -> None:
        self.attention = attention
        self.values_BLNH: torch.Tensor | None = None

    def attend(self, x_BTD: torch.Tensor, positions_T: torch.Tensor) -> torch.Tensor:
        """Append the new values, and mix the rows of the new positions."""
        attention = self.attention
        v_BTNH = attention.wv(x_BTD).unflatten(-1, (-1, attention.head_dim))
        self.values_BLNH = _append(self.values_BLNH, v_BTNH)
        inner, count = attention.inner_attention, len(positions_T)
        last = inner.last if isinstance(inner, Positional) else partial(mix_last, inner)
        return attention.wo(last(self.values_BLNH, count))


def _past(attention: BaseAttention) -> KeysAndValues | MixedValues:
    """Return an empty cache of the kind that a layer needs."""
    keeps_keys = isinstance(attention, GQAttention)
    return KeysAndValues(attention) if keeps_keys else MixedValues(attention)


def _append(past_BLNH: torch.Tensor | None, new_BTNH: torch.Tensor) -> torch.Tensor:
    return new_BTNH if past_BLNH is None else torch.cat([past_BLNH, new_BTNH], dim=1)


def mix_last(mixing: MixingMatrices, v_BLNH: torch.Tensor, count: int) -> torch.Tensor:
    """Return the last `count` rows of A v, (B, count, N H), equal to those of the complete
    product."""
    spec, state, end = mixing.spec, mixing.state(), v_BLNH.shape[1]
    first = end - count
    if mixing.form == "generated":
        means, stds = (state[name].view(torch.float32) for name in ("means", "stds"))
        flags = (spec.causal, spec.identity, spec.sink_head, spec.noise == "sign")
        rows = Rows(state["key"], means, stds, *flags)
        a_NTL, add_v = rows.draw(first, end, end), spec.identity
    else:
        a_NTL = stored_rows(state["matrix"], first, end)
        add_v = identity_apart(spec, a_NTL.dtype)
    out_BTNH = torch.einsum("nij,bjnh->binh", a_NTL.to(v_BLNH.dtype), v_BLNH)
    return (out_BTNH + v_BLNH[:, first:] if add_v else out_BTNH).flatten(2)

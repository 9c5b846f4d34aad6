"""One token after the other: the values of the past are kept, and only new rows are computed.

Shapes: B batch, T new tokens, D width, N heads, H head width, V vocabulary.
"""

import torch

from mixit_titan.errors import ConfigError
from mixit_titan.kernels.generated import Rows
from mixit_titan.kernels.stored import identity_apart
from mixit_titan.model.limits import too_long
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.mixing_attention import MixingAttention, RandomMixing


class MixingDecoder:
    """Gives the logits of new tokens; the same as those of the model for the whole sequence."""

    def __init__(self, model: MixitLlama) -> None:
        if model.config.variant.mixer != "mixing" or not model.config.recipe.causal:
            raise ConfigError("decoding from cached values needs a causal mixing model")
        self.model = model
        self.length = 0
        self.values: list[torch.Tensor] = []
        """v of the past, (B, length, N, H) for each layer."""

    @torch.no_grad()
    def step(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """Logits (B, T, V) of tokens that follow those of the earlier steps."""
        model, end = self.model, self.length + tokens_BT.shape[1]
        if end > model.config.max_seq_len:
            raise too_long(end, model.config.max_seq_len)
        positions = torch.arange(self.length, end, device=tokens_BT.device)
        h_BTD = model.tok_embeddings(tokens_BT, positions=positions)
        for index, block in enumerate(model.layers.values()):
            x_BTD = self._attend(index, block.attention, block.attention_norm(h_BTD))
            h_BTD = block.add(h_BTD, x_BTD)
            h_BTD = block.add(h_BTD, block.feed_forward(block.ffn_norm(h_BTD)))
        self.length = end
        return model.lm_head(model.norm(h_BTD))

    def _attend(self, layer: int, attention: MixingAttention, x_BTD: torch.Tensor) -> torch.Tensor:
        v_BTNH = attention.wv(x_BTD).unflatten(-1, (-1, attention.head_dim))
        if layer == len(self.values):
            self.values.append(v_BTNH)
        else:
            self.values[layer] = torch.cat([self.values[layer], v_BTNH], dim=1)
        return attention.wo(mix_last(attention.inner_attention, self.values[layer], x_BTD.shape[1]))


def mix_last(mixing: RandomMixing, v_BLNH: torch.Tensor, count: int) -> torch.Tensor:
    """The last `count` rows of A v, (B, count, N H): what a full product ends with."""
    spec, state, end = mixing.config.spec, mixing.state(), v_BLNH.shape[1]
    first = end - count
    if mixing.config.form == "generated":
        means, stds = (state[name].view(torch.float32) for name in ("means", "stds"))
        rows = Rows(state["key"], means, stds, spec.causal, spec.identity, spec.sink_head)
        a_NTL, add_v = rows.draw(first, end, end), spec.identity
    else:
        # Right of the diagonal a stored matrix may hold its transpose.
        a_NTL = state["matrix"][:, first:end, :end].tril(first)
        add_v = identity_apart(spec, a_NTL.dtype)
    out_BTNH = torch.einsum("nij,bjnh->binh", a_NTL.to(v_BLNH.dtype), v_BLNH)
    return (out_BTNH + v_BLNH[:, first:] if add_v else out_BTNH).flatten(2)

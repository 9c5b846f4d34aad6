"""This project's Llama, built from torchtitan's own modules.

One model class serves all stacks: a block's config says whether it holds torchtitan's attention or
the mixing attention, and how its residual, activation and linears are scaled.

Shapes: B batch, L length, D width, F width of the MLP, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn
from torchtitan.models.common import Linear, TransformerBlock
from torchtitan.models.common.attention import AttentionMasksType, BaseAttention, GQAttention
from torchtitan.models.common.decoder import Decoder
from torchtitan.models.common.feed_forward import FeedForward

from mixit_titan.kernels.documents import document_table
from mixit_titan.model.accounting import count
from mixit_titan.model.freezing import FrozenStorage
from mixit_titan.model.initialization import name_parameters
from mixit_titan.model.limits import too_long
from mixit_titan.model.mixers.attention import DocumentAttention
from mixit_titan.model.mixers.mixing import InnerMixing
from mixit_titan.model.mixers.positional import document_mask
from mixit_titan.model.mixers.window import WindowAttention
from mixit_titan.model.mixing_attention import PositionedEmbedding
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.sharding import set_sharding
from mixit_titan.model.stack import Stack

Float8Recipe = Literal["none", "rowwise", "rowwise_with_gw_hp"]
"""torchtitan's recipe: each row has its own scale; `gw_hp` keeps weight gradients in bfloat16."""


class ScaledLinear(Linear):
    """Computes factor * (W x + b)."""

    @dataclass(kw_only=True, slots=True)
    class Config(Linear.Config):
        factor: float

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.factor = config.factor

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.factor * super().forward(input)


class ShapedFeedForward(FeedForward):
    """Computes w2(gain * leaky(w1 x) * w3 x), where the LeakyReLU is close to the identity and the
    gain is its He gain."""

    @dataclass(kw_only=True, slots=True)
    class Config(FeedForward.Config):
        slope: float

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.slope = config.slope
        self.gain = math.sqrt(2 / (1 + config.slope**2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # torchtitan's argument name
        gate_BLF = self.gain * F.leaky_relu(self.w1(x), self.slope)
        return self.w2(gate_BLF * self.w3(x))


class Block(TransformerBlock):
    """Computes h = skip x + branch attention(norm(x)) and out = skip h + branch mlp(norm(h))."""

    @dataclass(kw_only=True, slots=True)
    class Config(TransformerBlock.Config):
        skip: float = 1.0
        branch: float = 1.0

    def __init__(self, config: Config) -> None:
        super().__init__()
        assert config.feed_forward is not None
        self.attention = config.attention.build()
        self.feed_forward = config.feed_forward.build()
        self.attention_norm = config.attention_norm.build()
        self.ffn_norm = config.ffn_norm.build()
        self.skip, self.branch = config.skip, config.branch

    def add(self, x_BLD: torch.Tensor, f_BLD: torch.Tensor) -> torch.Tensor:
        """Return skip * x + branch * fx, the scaled residual connection."""
        if self.skip == self.branch == 1.0:
            return x_BLD + f_BLD
        return self.skip * x_BLD + self.branch * f_BLD

    def forward(
        self,
        x_BLD: torch.Tensor,
        attention_masks: AttentionMasksType | None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        mixed_BLD = self.attention(self.attention_norm(x_BLD), attention_masks, positions)
        h_BLD = self.add(x_BLD, mixed_BLD)
        return self.add(h_BLD, self.feed_forward(self.ffn_norm(h_BLD)))


def mixes(attention: BaseAttention.Config) -> bool:
    """Return whether a layer with this attention has MixiT's matrices, and so takes a document
    table."""
    return isinstance(attention.inner_attention, InnerMixing.Config)


def attends(attention: BaseAttention.Config) -> bool:
    """Return whether a layer with this attention has queries and keys."""
    return isinstance(attention, GQAttention.Config)


def masked(attention: BaseAttention.Config) -> bool:
    """Return whether a layer with this attention takes a mask of what each token sees."""
    return isinstance(attention.inner_attention, DocumentAttention.Config)


class MixitLlama(Decoder):
    """A Llama whose layers each attend or mix, with frozen parts, as torchtitan's trainer expects
    it."""

    @dataclass(kw_only=True, slots=True)
    class Config(Decoder.Config):
        stack: Stack
        shape: Shape
        recipe: Recipe
        mixing_seed: int = 0
        """Seed of the mixing matrices."""
        init_seed: int = 0
        """Seed of the initial weights."""
        frozen_storage: FrozenStorage = "sharded"
        """How FSDP2 keeps frozen weights: see [fsdp] of a run."""
        float8: Float8Recipe = "none"
        """How the products of the layers' linears are rounded, as set by model/quantize.py."""

        @property
        def first_attention(self) -> BaseAttention.Config:
            """The layer that torchtitan reads the kind of masks and the length of rotary embeddings
            from: the first layer with attention, preferably one without a window."""
            found = [x.attention for x in self.layers if attends(x.attention)]
            window = WindowAttention.Config
            whole = [x for x in found if not isinstance(x.inner_attention, window)]
            return [*whole, *found, self.layers[0].attention][0]

        @property
        def first_mixing(self) -> InnerMixing.Config | None:
            """The first layer's MixiT matrices; those of all layers have the same settings."""
            mixing = (x.attention.inner_attention for x in self.layers if mixes(x.attention))
            return next(mixing, None)

        @property
        def max_seq_len(self) -> int:
            first = self.first_attention
            return first.rope.max_seq_len if attends(first) else self.shape.seq_len

        def update_from_config(self, *, config, **kwargs) -> None:  # noqa: ANN001, ANN003
            """Place the model on the run's ranks; `config` is a Trainer.Config. Seed and dtype are
            read again, because torchtitan's own command line changes a config after it has been
            made."""
            self.init_seed = config.debug.seed or 0
            layers = self.layers
            attending = [layer for layer in layers if attends(layer.attention)]
            if attending:  # torchtitan sets their rotary embeddings, and knows no other layers
                self.layers = attending
                try:
                    Decoder.Config.update_from_config(self, config=config, **kwargs)
                finally:
                    self.layers = layers
            for layer in layers:
                if mixes(layer.attention):
                    layer.attention.inner_attention.dtype = config.training.mixed_precision_param
            set_sharding(self, enable_sp=config.parallelism.enable_sequence_parallel)

        def get_nparams_and_flops(self, model: nn.Module, seq_len: int) -> tuple[int, int]:
            counts = count(self.shape, self.stack, seq_len=seq_len)
            return counts.trainable + counts.frozen, counts.flops_per_token

    def init_states(self, *, buffer_device: torch.device | None = None) -> None:
        if self.enable_weight_tying:
            # Done before the parameters are named, so that the shared one has a single name.
            self.tok_embeddings.weight = self.lm_head.weight
        name_parameters(self, self.config.init_seed)
        super().init_states(buffer_device=buffer_device)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor | None = None,
        attention_masks: AttentionMasksType | None = None,
    ) -> torch.Tensor:
        """Return the logits (B, L, V) of tokens (B, L), or of hidden states (B, L, D) on a later
        pipeline stage. The argument names are torchtitan's."""
        if tokens.shape[1] > self.config.max_seq_len:
            raise too_long(tokens.shape[1], self.config.max_seq_len)
        h_BLD = tokens
        if isinstance(self.tok_embeddings, PositionedEmbedding):
            h_BLD = self.tok_embeddings(tokens, positions=positions)
        elif self.tok_embeddings is not None:  # present on the first pipeline stage only
            h_BLD = self.tok_embeddings(tokens)
        kinds = {name: self.config.layers[int(name)].attention for name in self.layers}
        documents = within = None
        if positions is not None and any(map(mixes, kinds.values())):
            documents = document_table(positions.expand(len(tokens), -1))
        if positions is not None and any(map(masked, kinds.values())):
            within = document_mask(positions)
        for name, layer in self.layers.items():
            kind, masks = kinds[name], attention_masks
            if mixes(kind) or masked(kind):
                masks = documents if mixes(kind) else within
            h_BLD = layer(h_BLD, masks, positions)
        h_BLD = self.norm(h_BLD) if self.norm is not None else h_BLD
        if self._skip_lm_head or self.lm_head is None:
            return h_BLD
        return self.lm_head(h_BLD)

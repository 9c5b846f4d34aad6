"""The Llama of this project, built from torchtitan's own modules.

One model class serves all variants: a config says whether a block holds torchtitan's attention or
the mixing attention, and how its residual, activation and linears are scaled.

Shapes: B batch, L length, D width, N heads, H head width.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torchtitan.config import TORCH_DTYPE_MAP
from torchtitan.models.common import Embedding, Linear, TransformerBlock
from torchtitan.models.common.attention import AttentionMasksType, BaseAttention
from torchtitan.models.common.decoder import Decoder
from torchtitan.models.common.feed_forward import FeedForward
from torchtitan.models.llama3.sharding import set_llama3_sharding_config
from torchtitan.protocols.module import Module

from mixit_titan.kernels.mixing import MatrixSpec, causal_mix, mixing_matrix
from mixit_titan.model.document_attention import DocumentAttention, document_mask
from mixit_titan.model.initialization import name_parameters
from mixit_titan.model.limits import check_limits, too_long
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import Variant


class ScaledLinear(Linear):
    """factor * (W x + b)"""

    @dataclass(kw_only=True, slots=True)
    class Config(Linear.Config):
        factor: float

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.factor = config.factor

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.factor * super().forward(input)


class ShapedFeedForward(FeedForward):
    """w2(gain * leaky(w1 x) * w3 x), with a LeakyReLU close to the identity and its He gain."""

    @dataclass(kw_only=True, slots=True)
    class Config(FeedForward.Config):
        slope: float

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.slope = config.slope
        self.gain = math.sqrt(2 / (1 + config.slope**2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(self.gain * F.leaky_relu(self.w1(x), self.slope) * self.w3(x))


class PositionedEmbedding(Embedding):
    """Token embedding plus one learned vector per position.

    The positions live in this module, not beside it, so that torchtitan's pipeline splitting and
    FSDP wrapping, which go by module names, carry them along.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(Embedding.Config):
        seq_len: int

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.position_weight = nn.Parameter(torch.empty(config.seq_len, config.embedding_dim))

    def forward(self, input: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        if positions is None:
            return super().forward(input) + self.position_weight[: input.shape[1]]
        return super().forward(input) + F.embedding(positions, self.position_weight)


class RandomMixing(Module):
    """out_i = sum over j <= i of A_ij v_j, with the fixed random A of one layer.

    The buffer holds A - I where the recipe adds the identity: in bfloat16 a 1 on the diagonal would
    swallow the noise beside it.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        spec: MatrixSpec
        layer: int
        n_heads: int
        dtype: str = "float32"
        """What A is kept in: the dtype of the values that it multiplies."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        m = config.spec.length
        empty = torch.empty(config.n_heads, m, m, dtype=TORCH_DTYPE_MAP[config.dtype])
        self.register_buffer("matrix", empty, persistent=False)

    def _init_self_buffers(self, *, buffer_device: torch.device | None = None) -> None:
        cfg = self.config
        device = buffer_device or self.matrix.device
        matrix = mixing_matrix(cfg.spec, cfg.layer, range(cfg.n_heads), device=device)
        if cfg.spec.identity:
            matrix.diagonal(dim1=1, dim2=2).sub_(1.0)
        self.matrix = matrix.to(TORCH_DTYPE_MAP[cfg.dtype])

    def forward(
        self, v_BLNH: torch.Tensor, positions_BL: torch.Tensor | None = None
    ) -> torch.Tensor:
        mixed_BLNH = causal_mix(self.matrix, v_BLNH, positions_BL)
        return v_BLNH + mixed_BLNH if self.config.spec.identity else mixed_BLNH


class MixingAttention(BaseAttention):
    """wo(A (wv x)): values are mixed by a matrix that no input changes."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseAttention.Config):
        wv: Linear.Config
        wo: Linear.Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.wv.out_features // config.n_heads
        self.wv = config.wv.build()
        self.wo = config.wo.build()
        self.inner_attention = config.inner_attention.build()

    def forward(
        self,
        x_BLD: torch.Tensor,
        attention_masks: AttentionMasksType | None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        v_BLNH = self.wv(x_BLD).unflatten(-1, (-1, self.head_dim))
        return self.wo(self.inner_attention(v_BLNH, positions).flatten(2))


class Block(TransformerBlock):
    """h = skip x + branch attention(norm(x));  out = skip h + branch mlp(norm(h))"""

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

    def _add(self, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        if self.skip == self.branch == 1.0:
            return x + f
        return self.skip * x + self.branch * f

    def forward(
        self,
        x: torch.Tensor,
        attention_masks: AttentionMasksType | None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        h = self._add(x, self.attention(self.attention_norm(x), attention_masks, positions))
        return self._add(h, self.feed_forward(self.ffn_norm(h)))


class MixitLlama(Decoder):
    @dataclass(kw_only=True, slots=True)
    class Config(Decoder.Config):
        variant: Variant
        shape: Shape
        recipe: Recipe
        mixing_seed: int = 0
        """Seed of the mixing matrices."""
        init_seed: int = 0
        """Seed of the initial weights; the trainer sets it from debug.seed."""

        @property
        def max_seq_len(self) -> int:
            inner = self.layers[0].attention.inner_attention
            if isinstance(inner, RandomMixing.Config):
                return inner.spec.length
            return self.layers[0].attention.rope.max_seq_len

        def update_from_config(self, *, config, **kwargs) -> None:  # noqa: ANN001, ANN003
            """Take what the model needs from the run: `config` is a Trainer.Config."""
            check_limits(self, config.training, config.parallelism)
            if self.variant.mixer == "attention":
                Decoder.Config.update_from_config(self, config=config, **kwargs)
                sequence_parallel = config.parallelism.enable_sequence_parallel
                set_llama3_sharding_config(self, enable_sp=sequence_parallel)
            else:
                for layer in self.layers:
                    inner = layer.attention.inner_attention
                    inner.dtype = config.training.mixed_precision_param
            self.init_seed = config.debug.seed or 0

        def get_nparams_and_flops(self, model: nn.Module, seq_len: int) -> tuple[int, int]:
            from mixit_titan.model.accounting import count

            counts = count(self, model, seq_len)
            return counts.trainable + counts.frozen, counts.flops_per_token

    def init_states(self, *, buffer_device: torch.device | None = None) -> None:
        if self.enable_weight_tying:
            # Before the parameters are named, so that the shared one has one name.
            self.tok_embeddings.weight = self.lm_head.weight
        name_parameters(self, self.config.init_seed)
        super().init_states(buffer_device=buffer_device)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor | None = None,
        attention_masks: AttentionMasksType | None = None,
    ) -> torch.Tensor:
        if tokens.shape[1] > self.config.max_seq_len:
            raise too_long(tokens.shape[1], self.config.max_seq_len)
        h = tokens
        if isinstance(self.tok_embeddings, PositionedEmbedding):
            h = self.tok_embeddings(tokens, positions)
        elif self.tok_embeddings is not None:  # it is on the first pipeline stage only
            h = self.tok_embeddings(tokens)
        inner = self.config.layers[0].attention.inner_attention
        if positions is not None and isinstance(inner, DocumentAttention.Config):
            attention_masks = document_mask(positions)
        for layer in self.layers.values():
            h = layer(h, attention_masks, positions)
        h = self.norm(h) if self.norm is not None else h
        if self._skip_lm_head or self.lm_head is None:
            return h
        return self.lm_head(h)

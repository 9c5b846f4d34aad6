"""Random mixing as a module for any model. Importing it does not import torchtitan.

    mix = RandomMixing(heads=8, head_width=64, length=1024, layer=3)
    out = mix(v)  # (batch, tokens, heads, head width), in place of scaled_dot_product_attention

Shapes: B batch, L length, N heads, H head width.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Literal, Self, get_args

import torch

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.kernels import documents as kernel
from mixit_titan.kernels.fingerprint import fingerprint
from mixit_titan.kernels.matrices import MixingMatrices
from mixit_titan.kernels.mixing import Noise
from mixit_titan.model.recipes import Recipe, find_recipe
from mixit_titan.model.shapes import Shape


def document_table(positions_BL: torch.Tensor) -> torch.Tensor:
    """The table of documents that share the rows of a batch, to be computed once for all layers and
    passed to `RandomMixing`. Positions count from 0 within each document, and each row begins with
    a new document: `[[0, 1, 2, 0, 1]]`. On a GPU that is not checked, because the check would have
    to wait for the GPU."""
    if positions_BL.dim() != 2 or positions_BL.dtype not in (torch.int64, torch.int32):
        raise ConfigError(
            f"document_table: positions are {positions_BL.dtype} of the shape "
            f"{tuple(positions_BL.shape)}: they must be int64 or int32, (batch, tokens)"
        )
    if positions_BL.device.type == "cpu" and not torch.compiler.is_compiling():
        counted = (positions_BL[:, 1:] == 0) | (positions_BL.diff(dim=1) == 1)
        if not (counted.all() and (positions_BL[:, :1] == 0).all()):
            raise ConfigError(
                "document_table: positions must count from 0 in each document, and each row must "
                "begin with a document"
            )
    return kernel.document_table(positions_BL)


class RandomMixing(MixingMatrices):
    """Mixes tokens by one matrix per head that is drawn once and never trained: A v in place of
    softmax(q k) v. It has no parameters, and the model needs a position embedding beside it.

    `length` is the longest sequence. `recipe` is "paper", "official" or a `Recipe`, of which the
    settings of the matrix apply (std, noise, identity, sink_head, causal). `layer` is the index of
    the layer: the same seed and layer give the same matrices. `storage` is "stored", or "generated"
    to draw A while it is multiplied, which is fast on a GPU only. `dtype` is that of a stored A and
    of the product: bfloat16 for a model under autocast.

    A moves and casts with the model, and is drawn again on the new device: also by `to_empty`, for
    a model that was created on the meta device.
    """

    def __init__(
        self,
        heads: int,
        head_width: int,
        length: int,
        *,
        layer: int,
        recipe: str | Recipe = "paper",
        causal: bool | None = None,
        noise: Noise | None = None,
        seed: int = 0,
        storage: Literal["stored", "generated"] = "stored",
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = {"heads": heads, "head_width": head_width, "length": length}
        for name, number in (sizes | {"layer": layer, "seed": seed}).items():
            if not isinstance(number, int):
                raise ConfigError(f"RandomMixing: {name} is {number!r}: it must be an integer")
            if number < (name in sizes):
                raise ConfigError(f"RandomMixing: {name} is {number}: too small")
        if dtype is not None and not getattr(dtype, "is_floating_point", False):
            raise ConfigError(
                f"RandomMixing: dtype is {dtype!r}: it must be a float dtype of torch"
            )
        if storage not in ("stored", "generated"):
            raise ConfigError(
                f"RandomMixing: storage is {storage!r}: it must be 'stored' or 'generated'"
            )
        recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe
        if causal is not None:
            recipe = dataclasses.replace(recipe, causal=causal)
        if noise is not None:
            if noise not in get_args(Noise):
                raise unknown("noise of RandomMixing", noise, get_args(Noise))
            recipe = dataclasses.replace(recipe, noise=noise)
        width = heads * head_width
        shape = Shape(width=width, layers=1, heads=heads, hidden=1, vocab=1, seq_len=length)
        spec = recipe.matrix_spec(seed, shape)
        super().__init__(spec, layer, range(heads), storage, dtype or torch.get_default_dtype())
        self.head_width = head_width
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw A on the module's device; do nothing on the meta device."""
        device = next(self.buffers()).device
        if device.type != "meta":
            self.draw(device)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """Called by `to`, `to_empty`, `cuda`, `bfloat16` and the like. A is drawn again, because
        its stored form depends on device and dtype (in bfloat16 it is stored without its identity),
        and because `to_empty` leaves it without values."""
        before = list(self.buffers())
        super()._apply(fn, recurse)
        if any(old is not new for old, new in zip(before, self.buffers(), strict=True)):
            if self.form == "stored":
                self.dtype = self.matrix.dtype
            self.reset_parameters()
        return self

    def get_extra_state(self) -> torch.Tensor:
        """What a state dict stores of it: the seed, and a hash of everything that A depends on. It
        is a tensor because every checkpoint format can store tensors."""
        words = fingerprint(self.spec, [self.layer], self.heads[-1])
        spec = dataclasses.asdict(self.spec)
        if spec["noise"] == "gaussian":  # as in checkpoints from before there was a choice
            del spec["noise"]
        described = f"{tuple(spec.values())} {self.layer} {len(self.heads)} {words}"
        digest = hashlib.sha256(described.encode()).digest()
        hashed = int.from_bytes(digest[:8], "little", signed=True)
        return torch.tensor([self.spec.seed, hashed], device="cpu")

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Load nothing, but raise a ConfigError if the weights were trained with another A."""
        (seed, hashed), (our_seed, ours) = state.tolist(), self.get_extra_state().tolist()
        if seed != our_seed:
            raise ConfigError(
                f"these weights were trained with mixing seed {seed}, and here it is {our_seed}: "
                f"create the RandomMixing of layer {self.layer} with seed={seed}"
            )
        if hashed != ours:
            raise ConfigError(
                "these weights were trained with the same seed but another mixing matrix than "
                f"that of layer {self.layer} here: recipe, causal, noise, layer, heads, head_width "
                "or length differ, or the version of mixit_titan"
            )

    def extra_repr(self) -> str:
        """The settings that `print(model)` shows."""
        return (
            f"heads={len(self.heads)}, head_width={self.head_width}, length={self.spec.length}, "
            f"layer={self.layer}, seed={self.spec.seed}, causal={self.spec.causal}, "
            f"noise={self.spec.noise!r}, storage={self.form!r}, dtype={self.dtype}"
        )

    def forward(
        self, v_BLNH: torch.Tensor, *, documents: torch.Tensor | None = None
    ) -> torch.Tensor:
        """A v. `documents` is the `document_table` of the positions of packed documents, computed
        once for all layers; None means one document per row."""
        self._check_values(v_BLNH)
        if documents is not None:
            _check_documents(documents, *v_BLNH.shape[:2])
        if self.form == "generated" or v_BLNH.dtype == self.matrix.dtype:
            return super().forward(v_BLNH, documents=documents)
        mixed = super().forward(v_BLNH.to(self.matrix.dtype), documents=documents)
        return mixed.to(v_BLNH.dtype)

    def _check_values(self, v_BLNH: torch.Tensor) -> None:
        heads, length = len(self.heads), self.spec.length
        if not v_BLNH.is_floating_point():
            raise ConfigError(
                f"RandomMixing: v is of {v_BLNH.dtype}: it must be of a floating-point dtype"
            )
        if v_BLNH.dim() != 4 or v_BLNH.shape[2:] != (heads, self.head_width):
            raise ConfigError(
                f"RandomMixing: v has the shape {tuple(v_BLNH.shape)}: it must be (batch, tokens, "
                f"heads, head width) with {heads} heads of {self.head_width}, such as "
                "v.view(batch, tokens, heads, -1) before any transpose(1, 2)"
            )
        if v_BLNH.shape[1] > length:
            raise ConfigError(
                f"RandomMixing: v has {v_BLNH.shape[1]} tokens in its second dimension, and length "
                f"is {length}: create the RandomMixing with a larger length"
            )


def _check_documents(documents: torch.Tensor, batch: int, length: int) -> None:
    """Refuse a table that does not belong to this batch: the product would read and write outside
    of v."""
    fits = documents.dtype == torch.int32 and documents.shape == (
        1 + kernel.slots(batch, length),
        4,
    )
    if fits and documents.device.type == "cpu" and not torch.compiler.is_compiling():
        _, row, first, size = documents[1:].unbind(
            1
        )  # tables of two batch shapes may have the same size
        inside = (row < batch) & (first >= 0) & (first + size <= length)
        fits = bool((inside | (size == 0)).all())
    if not fits:
        raise ConfigError(
            f"RandomMixing: documents do not belong to v, with {batch} rows of {length} tokens: "
            "they must be document_table(positions), with positions of that shape"
        )

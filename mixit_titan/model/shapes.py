"""The sizes of a model, and the named sizes (flavors)."""

from dataclasses import asdict, dataclass

from mixit_titan.errors import ConfigError, unknown
from mixit_titan.model.initial_std import AUTHORS_STD, STD_RANGE, Std, check_std, std_by_part
from mixit_titan.ranges import NOT_NEGATIVE, POSITIVE, Range, check_ranges

ROPE_SCALING = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Fixed parameters of Llama 3.1's rotary scaling, which rope_factor completes."""

_SIZE = Range(least=1, most=2**24)
RANGES = {
    **dict.fromkeys(("width", "heads", "hidden", "vocab", "seq_len", "kv_heads", "window"), _SIZE),
    "layers": Range(least=1, most=10_000),
    "rope_theta": POSITIVE,
    "rope_factor": Range(least=1),
    "init_std": STD_RANGE,
    "embedding_std": STD_RANGE,
    "norm_eps": NOT_NEGATIVE,
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model and how it is initialized; every key of [model] that is not about
    layers."""

    width: int
    """Width of the residual stream."""
    layers: int
    """Number of layers."""
    heads: int
    """Query heads, or mixing matrices, per layer."""
    hidden: int
    """Width of the MLP."""
    vocab: int
    """Size of the vocabulary."""
    seq_len: int
    """The longest sequence: rows of the mixing matrices and the position embedding, and positions
    of RoPE."""
    kv_heads: int | None = None
    """Key and value heads, if fewer than query heads (attention only); None: as many as query
    heads."""
    bias: bool = False
    """Use biases on every linear of a layer. The head has none."""
    tied: bool = False
    """Tie the embedding and the head: they share one weight."""
    rope_theta: float = 10000.0
    """The base of the rotary frequencies."""
    rope_factor: float = 1.0
    """The factor by which Llama 3.1's scaling stretches slow rotary frequencies (8 in Llama 3.1, 32
    in Llama 3.2); 1: no scaling."""
    init_std: Std | dict[str, Std] = "fan_in"
    """Standard deviation of the linears' weights, for all of them or by part
    (model/initial_std.py)."""
    embedding_std: Std = "fan_in"
    """Standard deviation of the token and position embeddings; a tied token embedding takes the
    head's init_std."""
    norm_eps: float = 1e-6
    """The constant that RMSNorm adds to the mean square."""
    window: int = 64
    """Tokens that a token sees in layers of the window mixer, itself included."""

    def __post_init__(self) -> None:
        check_ranges(asdict(self), RANGES, "model.{}".format)
        check_std(self.embedding_std, "model.embedding_std")
        by_part = std_by_part(self.init_std)
        if isinstance(self.init_std, dict):
            object.__setattr__(self, "init_std", by_part)
        if self.width % self.heads:
            raise ConfigError(
                f"model.heads = {self.heads} does not divide model.width = {self.width}: "
                "choose a number of heads that does"
            )
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ConfigError(
                f"model.kv_heads = {self.kv_heads} does not divide model.heads = {self.heads}"
            )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


# A vocabulary of 128,256 is Llama 3's. 1b, 3b and 8b have the shapes of Llama 3.2 and 3.1; 160m and
# 410m those usual for models of that name (about 85 and 310 million weights besides the embedding).
# table4 and paper are compared with the authors' results, and are initialized as theirs were.
_AUTHORS = {"init_std": AUTHORS_STD, "embedding_std": AUTHORS_STD}
FLAVORS = {
    "debug": Shape(width=128, layers=4, heads=4, hidden=512, vocab=512, seq_len=128),
    "table4": Shape(
        width=128, layers=2, heads=4, hidden=512, vocab=1024, seq_len=3, bias=True, **_AUTHORS
    ),
    "paper": Shape(
        width=512,
        layers=12,
        heads=8,
        hidden=2048,
        vocab=128256,
        seq_len=256,
        bias=True,
        **_AUTHORS,
    ),
    "160m": Shape(
        width=768, layers=12, heads=12, hidden=2048, vocab=128256, seq_len=2048, tied=True
    ),
    "410m": Shape(
        width=1024, layers=24, heads=16, hidden=2816, vocab=128256, seq_len=2048, tied=True
    ),
    "1b": Shape(
        width=2048,
        layers=16,
        heads=32,
        kv_heads=8,
        hidden=8192,
        vocab=128256,
        seq_len=2048,
        tied=True,
        rope_theta=500000.0,
    ),
    "3b": Shape(
        width=3072,
        layers=28,
        heads=24,
        kv_heads=8,
        hidden=8192,
        vocab=128256,
        seq_len=2048,
        tied=True,
        rope_theta=500000.0,
    ),
    "8b": Shape(
        width=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        hidden=14336,
        vocab=128256,
        seq_len=2048,
        rope_theta=500000.0,
    ),
}


def find_flavor(name: str) -> Shape:
    """Return the shape of a flavor; an unknown name is a ConfigError."""
    if name not in FLAVORS:
        raise unknown("model.flavor", name, FLAVORS)
    return FLAVORS[name]

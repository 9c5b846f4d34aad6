"""The models of the paper in plain NumPy and float64, to compare ours to.

Written from the formulas: those of the paper ("Is Random Attention Sufficient for Sequence
Modeling?", arXiv 2506.01115), and for the `official` recipe those of its authors' code. It imports
nothing of mixit_titan, and shares only the names of the weights with it.

    x = E[token]                                 MixiT: E[token] + P[position]
    x = skip x + branch mixer(RMSNorm(x))        in each layer; the mixer is attention or MixiT's
    x = skip x + branch mlp(RMSNorm(x))          in each layer
    logits = head(RMSNorm(x))

Documents that are packed into a row: positions count from 0 in each, and no token sees another
document.

Shapes: B batch, L length, D width, N heads, H head width, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np

from .numpy_philox import head_uniform, mixing_noise, mixing_signs

Weights = dict[str, np.ndarray]

NORM_EPS = 1e-6
ROPE_THETA = 10000.0
IGNORED = -100  # the label of a token that is not counted


@dataclass(frozen=True, kw_only=True)
class Recipe:
    std: str
    """Standard deviation of W, n the width, m the model's length, h the head width. "width":
    1/sqrt(n m). "length": 1/sqrt(m). "heads": one per head, between 1/sqrt(m h) and 1/sqrt(m)."""
    signs: bool = False
    """W is of signs; else of normals."""
    identity: bool = True
    """A = I + W - mean(W); else W - mean(W)."""
    sink_head: bool = False
    causal: bool = True
    """Of MixiT alone. Attention always is."""
    residual: float | None = None
    """lambda of lambda x + sqrt(1 - lambda^2) f(x); None: x + f(x)."""
    branch: float = 1.0
    """r of x + r f(x)."""
    leaky_c: float | None = None
    """c of the gate's LeakyReLU, which has slope 1 + c/sqrt(n); None: SiLU."""
    linear_factors: bool = False
    """Each linear times sqrt(512 / inputs), the MLP's last one times sqrt(1 / inputs)."""


OFFICIAL = {"sink_head": True, "linear_factors": True}
RECIPES = {
    "paper": Recipe(std="width"),
    "official": Recipe(std="heads", residual=0.5, leaky_c=-1.0, **OFFICIAL),
    # What the authors' scripts/train.sh sets: depth_alpha 1, c +1. With 2 layers r = (4 / 2)^1.
    "depth_alpha": Recipe(std="length", identity=False, branch=2.0, leaky_c=1.0, **OFFICIAL),
    "not_causal": Recipe(std="width", causal=False),
    "signs": Recipe(std="heads", signs=True, residual=0.5, leaky_c=-1.0, **OFFICIAL),
}


@dataclass(frozen=True, kw_only=True)
class Llama:
    """One model. Stacks differ in `mixes` alone: to freeze a part changes no output."""

    recipe: Recipe
    mixes: tuple[bool, ...]
    """Of each layer, whether its mixer is MixiT's."""
    heads: int
    kv_heads: int
    """Key and value heads of attention, each shared by heads / kv_heads queries."""

    def logits(
        self,
        weights: Weights,
        tokens_BL: np.ndarray,
        positions_BL: np.ndarray,
        matrices: list[np.ndarray],
    ) -> np.ndarray:
        """(B, L, V). `matrices`: the mixing matrices of each layer, none for attention."""
        embedding_VD = weights["tok_embeddings.weight"]
        weights = {"lm_head.weight": embedding_VD, **weights}  # without a head of its own: tied
        x_BLD = embedding_VD[tokens_BL]
        if "tok_embeddings.position_weight" in weights:
            x_BLD = x_BLD + weights["tok_embeddings.position_weight"][positions_BL]
        for layer, mixes in enumerate(self.mixes):
            here = Layer(self, weights, f"layers.{layer}.")
            h_BLD = rms_norm(x_BLD, here["attention_norm.weight"])
            if mixes:
                x_BLD = self.add(x_BLD, here.mixing(h_BLD, positions_BL, matrices[layer]))
            else:
                x_BLD = self.add(x_BLD, here.attention(h_BLD, positions_BL))
            x_BLD = self.add(x_BLD, here.mlp(rms_norm(x_BLD, here["ffn_norm.weight"])))
        return Layer(self, weights, "").linear(rms_norm(x_BLD, weights["norm.weight"]), "lm_head")

    def add(self, x_BLD: np.ndarray, f_BLD: np.ndarray) -> np.ndarray:
        skip = self.recipe.residual
        if skip is None:
            return x_BLD + self.recipe.branch * f_BLD
        return skip * x_BLD + np.sqrt(1 - skip**2) * f_BLD

    def matrices(self, seed: int, *, width: int, m: int) -> list[np.ndarray]:
        """The mixing matrices of each layer: (N, m, m)."""
        sizes = {"width": width, "head_width": width // self.heads, "m": m}
        return [
            np.array([mixing_matrix(self.recipe, seed, n, h, **sizes) for h in range(self.heads)])
            if mixes
            else np.zeros(0)
            for n, mixes in enumerate(self.mixes)
        ]


@dataclass(frozen=True)
class Layer:
    """The functions of one layer, and its weights by their names."""

    model: Llama
    weights: Weights
    prefix: str

    def __getitem__(self, name: str) -> np.ndarray:
        return self.weights[self.prefix + name]

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        """f (W x + b), f = 1 but for recipes with factors."""
        weight = self[f"{name}.weight"]
        bias = self.weights.get(f"{self.prefix}{name}.bias", 0.0)
        return linear_factor(self.model.recipe, name, weight.shape[1]) * (x @ weight.T + bias)

    def heads(self, x_BLD: np.ndarray, name: str, count: int) -> np.ndarray:
        """The outputs of a linear, cut into heads: (B, N, L, H)."""
        out = self.linear(x_BLD, name)
        return out.reshape(*out.shape[:2], count, -1).transpose(0, 2, 1, 3)

    def attention(self, x_BLD: np.ndarray, positions_BL: np.ndarray) -> np.ndarray:
        """softmax(q k^T / sqrt(h)) v over what a token sees, q and k rotated by their positions."""
        heads, kv_heads = self.model.heads, self.model.kv_heads
        q_BNLH = rotate(self.heads(x_BLD, "attention.qkv_linear.wq", heads), positions_BL)
        k_BNLH = rotate(self.heads(x_BLD, "attention.qkv_linear.wk", kv_heads), positions_BL)
        v_BNLH = self.heads(x_BLD, "attention.qkv_linear.wv", kv_heads)
        # Query heads 0, 1, ... share key head 0, the next ones key head 1.
        k_BNLH, v_BNLH = (x.repeat(heads // kv_heads, axis=1) for x in (k_BNLH, v_BNLH))
        scores_BNLL = q_BNLH @ k_BNLH.swapaxes(2, 3) / np.sqrt(q_BNLH.shape[-1])
        seen_BNLL = visible(positions_BL, causal=True)[:, None]
        scores_BNLL = np.where(seen_BNLL, scores_BNLL, -np.inf)
        shares_BNLL = np.exp(scores_BNLL - scores_BNLL.max(-1, keepdims=True))
        shares_BNLL /= shares_BNLL.sum(-1, keepdims=True)
        return self.linear(join(shares_BNLL @ v_BNLH), "attention.wo")

    def mixing(self, x_BLD: np.ndarray, positions_BL: np.ndarray, a_NMM: np.ndarray) -> np.ndarray:
        """out_i = sum over the visible j of A[position of i, position of j] v_j"""
        v_BNLH = self.heads(x_BLD, "attention.wv", self.model.heads)
        a_NBLL = a_NMM[:, positions_BL[:, :, None], positions_BL[:, None, :]]
        a_NBLL = a_NBLL * visible(positions_BL, causal=self.model.recipe.causal)
        return self.linear(join(a_NBLL.swapaxes(0, 1) @ v_BNLH), "attention.wo")

    def mlp(self, x_BLD: np.ndarray) -> np.ndarray:
        """W_D (phi(W_G x) * W_U x), phi a SiLU, or a LeakyReLU times its He gain."""
        gate = self.linear(x_BLD, "feed_forward.w1")
        if self.model.recipe.leaky_c is None:
            gate = gate / (1 + np.exp(-gate))
        else:
            slope = 1 + self.model.recipe.leaky_c / np.sqrt(x_BLD.shape[-1])
            gate = np.sqrt(2 / (1 + slope**2)) * np.where(gate > 0, gate, slope * gate)
        return self.linear(gate * self.linear(x_BLD, "feed_forward.w3"), "feed_forward.w2")


def loss(logits_BLV: np.ndarray, labels_BL: np.ndarray) -> float:
    """Cross entropy in nats per token, over the labels that are not ignored."""
    counted = labels_BL != IGNORED
    rows, labels = logits_BLV[counted], labels_BL[counted]
    chosen = rows[np.arange(len(rows)), labels]
    return float(np.mean(np.log(np.exp(rows).sum(-1)) - chosen))


def linear_factor(recipe: Recipe, name: str, inputs: int) -> float:
    base = 1 if name == "feed_forward.w2" else 512
    return np.sqrt(base / inputs) if recipe.linear_factors else 1.0


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return weight * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + NORM_EPS)


def rotate(x_BNLH: np.ndarray, positions_BL: np.ndarray) -> np.ndarray:
    """Rotary embeddings in Hugging Face's layout: dimension j pairs with j + h/2, and the pair is
    turned by position * theta^(-2j/h)."""
    h = x_BNLH.shape[-1]
    angle = positions_BL[:, None, :, None] * ROPE_THETA ** (-2 * np.arange(h // 2) / h)
    a, b = x_BNLH[..., : h // 2], x_BNLH[..., h // 2 :]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def visible(positions_BL: np.ndarray, *, causal: bool) -> np.ndarray:
    """(B, L, L): whether token i sees token j, which is in the same document and not later."""
    document_BL = np.cumsum(positions_BL == 0, axis=1)
    same_BLL = document_BL[:, :, None] == document_BL[:, None, :]
    return same_BLL & np.tri(positions_BL.shape[1], dtype=bool) if causal else same_BLL


def join(x_BNLH: np.ndarray) -> np.ndarray:
    """Heads side by side: (B, L, D)."""
    x_BLNH = x_BNLH.transpose(0, 2, 1, 3)
    return x_BLNH.reshape(*x_BLNH.shape[:2], -1)


def mixing_matrix(
    recipe: Recipe, seed: int, layer: int, head: int, *, width: int, head_width: int, m: int
) -> np.ndarray:
    """A = I + std (W - mean(W)), the mean of a row over what it sees; or the sink."""
    if recipe.sink_head and head == 0:
        a_MM = 0.5 * np.eye(m)
        a_MM[:, 0] = 0.5  # half itself, half position 0; position 0 has one half only
        return a_MM
    low, high = {
        "width": 2 * [1 / np.sqrt(width * m)],
        "length": 2 * [1 / np.sqrt(m)],
        "heads": [1 / np.sqrt(m * head_width), 1 / np.sqrt(m)],
    }[recipe.std]
    std = low + head_uniform(seed, layer, head) * (high - low)
    noise_MM = (mixing_signs if recipe.signs else mixing_noise)(seed, layer, head, m)
    a_MM = np.eye(m) if recipe.identity else np.zeros((m, m))
    for i in range(m):
        seen = noise_MM[i, : i + 1 if recipe.causal else m]
        a_MM[i, : len(seen)] += std * (seen - seen.mean())
    return a_MM

"""Our models against the formulas in plain NumPy (numpy_llama.py).

What is compared: the mixing matrices; logits and loss of every variant with every recipe, from the
same weights and from the seeds alone; and gradients by autograd against differences of NumPy's
loss.

Ours run in float64 here (`model.double()`), so that a wrong formula cannot hide in rounding. Three
things stay float32 by design, and set the tolerance: the rotary embeddings, the mixing matrices,
and the logits in torchtitan's loss. A float32 has 24 bits, so each is off by 6e-8 of its size.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torchtitan.components.loss import IGNORE_INDEX, cross_entropy_loss

from mixit_titan.kernels.mixing import mixing_matrix
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze, named_weights
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import read_stack

from . import numpy_llama as formulas
from .numpy_philox import initial_normals

OUR_RECIPES = {
    **RECIPES,
    "depth_alpha": dataclasses.replace(RECIPES["official"], depth_alpha=1.0, activation_c=1.0),
    "not_causal": dataclasses.replace(RECIPES["paper"], causal=False),
    "signs": dataclasses.replace(RECIPES["official"], noise="sign"),
}
FROZEN = {  # the paper's table of variants, in the names of the weights
    "standard": (),
    "frozen_qk": (".wq.", ".wk."),
    "frozen_mlp": (".feed_forward.",),
    "mixit": (),
    "random": ("layers.", "norm."),
    "mixit frozen_qk": ("layers.1.attention.qkv_linear.wq.", "layers.1.attention.qkv_linear.wk."),
    "attention-freeze-norm mixing-freeze-mlp": ("0.attention_norm.", "0.ffn_norm.", "1.feed_f"),
}
MIXES = {"mixit": (True, True), "mixit frozen_qk": (True, False)}
MIXES["attention-freeze-norm mixing-freeze-mlp"] = (False, True)
MODELS = [
    (variant, recipe)
    for variant in FROZEN
    for recipe in OUR_RECIPES
    if variant == "mixit" or recipe not in ("not_causal", "signs")  # of the matrices alone
]
# Two query heads share a key head.
SHAPE = Shape(width=16, layers=2, heads=4, kv_heads=2, hidden=24, vocab=11, seq_len=14, bias=True)
MIXING_SEED = 2**40 + 3  # both words of the key count
TOKENS = np.random.default_rng(0).integers(0, SHAPE.vocab, (2, SHAPE.seq_len))
# Two rows: documents of 5, 1 and 8 tokens; one of 13, and one token of padding.
POSITIONS = np.array([[*range(5), 0, *range(8)], [*range(13), 0]])
LABELS = np.roll(TOKENS, -1, axis=1)
LABELS[0, [4, 5, 13]] = LABELS[1, 12:] = formulas.IGNORED  # what follows is another document


@dataclass
class Pair:
    """Our model in float64 and NumPy's, with the same weights."""

    ours: MixitLlama
    numpys: formulas.Llama
    weights: formulas.Weights
    matrices: list[np.ndarray]

    def our_logits(self) -> torch.Tensor:
        return self.ours(torch.from_numpy(TOKENS), torch.from_numpy(POSITIONS))

    def our_loss(self) -> torch.Tensor:
        """As torchtitan's trainer has it: the sum, divided by the number of labels."""
        labels = torch.from_numpy(LABELS)
        return cross_entropy_loss(self.our_logits(), labels) / (labels != IGNORE_INDEX).sum()

    def gradients(self) -> formulas.Weights:
        """Of our loss, by autograd, for each parameter that has one."""
        self.our_loss().backward()
        parameters = named_weights(self.ours)
        return {name: p.grad.numpy() for name, p in parameters if p.grad is not None}

    def logits(self, weights: formulas.Weights) -> np.ndarray:
        return self.numpys.logits(weights, TOKENS, POSITIONS, self.matrices)

    def loss(self, weights: formulas.Weights) -> float:
        return formulas.loss(self.logits(weights), LABELS)


def numpy_model(variant: str, recipe: str, shape: Shape) -> formulas.Llama:
    return formulas.Llama(
        recipe=formulas.RECIPES[recipe],
        mixes=MIXES.get(variant, (False, False)),
        heads=shape.heads,
        kv_heads=shape.kv_heads or shape.heads,
    )


def pair(variant: str, recipe: str, shape: Shape = SHAPE, **settings: bool | str) -> Pair:
    stack = read_stack(variant, shape.layers)
    config = llama_config(shape, stack, OUR_RECIPES[recipe], mixing_seed=MIXING_SEED, **settings)
    ours = config.build()
    ours.init_states()
    ours.double()
    numpys = numpy_model(variant, recipe, shape)
    weights = lively(ours, numpys.recipe)
    for name, parameter in named_weights(ours):
        parameter.data = torch.from_numpy(weights[name])
    freeze(ours, stack)
    matrices = numpys.matrices(MIXING_SEED, width=shape.width, m=shape.seq_len)
    return Pair(ours, numpys, weights, matrices)


def lively(model: MixitLlama, recipe: formulas.Recipe) -> formulas.Weights:
    """Weights that hide nothing: at initialization biases are 0, norms 1 and attention is almost
    uniform. The embedding stays small, so that the epsilon of the first norm counts."""
    draw, weights = np.random.default_rng(1), {}
    for name, parameter in named_weights(model):
        normals = draw.standard_normal(parameter.shape)
        if "norm" in name:
            weights[name] = 1 + 0.3 * normals
        elif name.endswith(".bias"):
            weights[name] = 0.3 * normals
        elif "tok_embeddings" in name:
            weights[name] = 0.02 * normals
        else:
            module, inputs = ".".join(name.split(".")[-3:-1]), parameter.shape[1]
            factor = formulas.linear_factor(recipe, module, inputs)
            weights[name] = normals / np.sqrt(inputs) / factor
    return weights


def error(ours: torch.Tensor, numpys: np.ndarray) -> float:
    """The largest difference, as a share of the largest number."""
    assert ours.shape == numpys.shape
    return np.abs(ours.detach().double().numpy() - numpys).max() / np.abs(numpys).max()


@pytest.mark.parametrize("recipe", OUR_RECIPES)
def test_mixing_matrices(recipe: str) -> None:
    """A row of more than 128 columns, which is where the counter of the next ones begins."""
    shape = dataclasses.replace(SHAPE, seq_len=150)
    spec = OUR_RECIPES[recipe].matrix_spec(MIXING_SEED, shape)
    numpys = numpy_model("mixit", recipe, shape)
    expected = numpys.matrices(MIXING_SEED, width=shape.width, m=shape.seq_len)
    for layer in range(shape.layers):
        assert error(mixing_matrix(spec, layer, range(shape.heads)), expected[layer]) < 1e-6


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_logits_and_loss(variant: str, recipe: str) -> None:
    both = pair(variant, recipe)
    assert error(both.our_logits(), both.logits(both.weights)) < 1e-6
    assert both.our_loss().item() == pytest.approx(both.loss(both.weights), rel=1e-6)


@pytest.mark.parametrize("recipe", OUR_RECIPES)
def test_given_the_same_matrices_mixit_is_exact(recipe: str) -> None:
    """Without float32 on the way, nothing but the last bits of float64 is left."""
    both = pair("mixit", recipe)
    spec = both.ours.config.layers[0].attention.inner_attention.spec
    both.matrices = [
        mixing_matrix(spec, layer, range(SHAPE.heads)).double().numpy() for layer in range(2)
    ]
    assert error(both.our_logits(), both.logits(both.weights)) < 1e-13


@pytest.mark.parametrize(
    ("variant", "changes", "settings"),
    [
        ("standard", {"tied": True, "bias": False}, {}),
        ("standard", {"kv_heads": None}, {}),
        ("random", {}, {"learned_positions": True}),
        ("mixit", {"tied": True, "bias": False}, {}),
        ("mixit", {"seq_len": 40}, {}),  # a row takes the corner of longer matrices
        ("mixit", {}, {"form": "sharded"}),
        ("mixit", {}, {"form": "generated"}),
    ],
    ids=str,
)
def test_logits_of_other_models(variant: str, changes: dict, settings: dict) -> None:
    both = pair(variant, "official", dataclasses.replace(SHAPE, **changes), **settings)
    assert error(both.our_logits(), both.logits(both.weights)) < 1e-6


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_a_model_from_its_seeds_alone(variant: str, recipe: str) -> None:
    """As a user has it, in float32, unpacked: NumPy knows the seeds and the tokens only."""
    shape = dataclasses.replace(SHAPE, bias=False, embedding_std=1.0, init_std=0.3)
    seeds = {"init_seed": 7, "mixing_seed": MIXING_SEED}
    stack = read_stack(variant, shape.layers)
    ours = llama_config(shape, stack, OUR_RECIPES[recipe], **seeds).build()
    ours.init_states()
    weights = {}
    for name, value in ours.state_dict().items():
        std = 1.0 if "tok_embeddings" in name else 0.3
        normals = initial_normals(7, name, tuple(value.shape))
        weights[name] = np.ones(value.shape) if "norm" in name else std * normals
    numpys = numpy_model(variant, recipe, shape)
    matrices = numpys.matrices(MIXING_SEED, width=shape.width, m=shape.seq_len)
    positions = np.tile(np.arange(shape.seq_len), (2, 1))
    expected = numpys.logits(weights, TOKENS, positions, matrices)
    assert error(ours(torch.from_numpy(TOKENS)), expected) < 2e-5


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("variant", "recipe"),
    [model for model in MODELS if model[0] in ("standard", "mixit", "mixit frozen_qk")],
)
def test_gradients_are_differences_of_numpys_loss(variant: str, recipe: str, tied: bool) -> None:
    """Two elements of each parameter, moved one by one."""
    both = pair(variant, recipe, dataclasses.replace(SHAPE, tied=tied))
    draw = np.random.default_rng(2)
    for name, gradient in both.gradients().items():
        for element in draw.choice(gradient.size, 2, replace=False):
            one = np.zeros(gradient.size)
            one[element] = 1.0
            expected = slope(both, {name: one.reshape(gradient.shape)})
            difference = abs(gradient.flat[element] - expected)
            assert difference < 3e-6 * np.abs(gradient).max(), f"element {element} of {name}"


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_frozen_parts_have_no_gradient_and_change_no_other(variant: str, recipe: str) -> None:
    """The rest has the gradients that it has if nothing is frozen, and along a random direction
    of all trained weights they are the slope of NumPy's loss."""
    both = pair(variant, recipe)
    gradients = both.gradients()
    mixers = ("mixing" if mixes else "attention" for mixes in both.numpys.mixes)
    everything = pair(" ".join(mixers), recipe).gradients()
    frozen = {name for name in everything if any(mark in name for mark in FROZEN[variant])}
    assert gradients.keys() == everything.keys() - frozen
    for name, gradient in gradients.items():
        assert np.array_equal(gradient, everything[name]), name
    draw = np.random.default_rng(3)
    direction = {name: draw.standard_normal(g.shape) for name, g in gradients.items()}
    along = sum((gradients[name] * direction[name]).sum() for name in gradients)
    assert along == pytest.approx(slope(both, direction), rel=3e-6)


def slope(both: Pair, direction: formulas.Weights, h: float = 1e-6) -> float:
    """The derivative of NumPy's loss along a direction, by a central difference."""

    def moved(step: float) -> float:
        return both.loss(
            both.weights | {name: both.weights[name] + step * d for name, d in direction.items()}
        )

    return (moved(h) - moved(-h)) / (2 * h)

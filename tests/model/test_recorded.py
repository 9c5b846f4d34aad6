"""A few numbers of every variant and recipe, as they were: a change in numerics is seen at once.

recorded.json has one line per quantity: the losses of three steps of plain SGD in float32 and some
logits of the last; of its gradients, the weights at initialization and the mixing matrices a norm
and a projection. Whether the numbers are right is for test_numpy.py and test_golden.py to say.

If they changed and were meant to, record them anew and let the diff be reviewed:

    python -m tests.model.test_recorded
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from mixit_titan.kernels.fingerprint import fingerprint
from mixit_titan.kernels.mixing import mixing_matrix
from mixit_titan.model.build import llama_config
from mixit_titan.model.freezing import freeze, part_of
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS

FILE = Path(__file__).with_name("recorded.json")
MODELS = [(variant, recipe) for variant in VARIANTS for recipe in RECIPES]
ONE_PER_MIXER = ["standard", "mixit"]
# Recorded when the authors' deviations were the default: they still give the same numbers.
AUTHORS = {"init_std": 0.02, "embedding_std": 0.02}
SIZES = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 48, "vocab": 50}
SHAPE = Shape(**SIZES, seq_len=40, bias=True, **AUTHORS)
# What is not said here, such as the deviations at initialization, is the default and recorded too.
BY_DEFAULT = Shape(**SIZES, seq_len=40, bias=True)
STEPS, RATE = 3, 0.02
# Another CPU rounds differently; what is meant to be noticed is larger.
TOLERANCE = 1e-5

Lines = dict[str, list[float] | str]


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens by arithmetic, and positions of a row of one document and a row of three."""
    tokens = (torch.arange(80) ** 3 % 61 % SHAPE.vocab).view(2, 40)
    packed = torch.cat([torch.arange(length) for length in (17, 1, 22)])
    return tokens, torch.stack([torch.arange(40), packed])


def built(variant: str, recipe: str, shape: Shape = SHAPE) -> MixitLlama:
    seeds = {"init_seed": 1, "mixing_seed": 2}
    model = llama_config(shape, VARIANTS[variant], RECIPES[recipe], **seeds).build()
    model.init_states()
    freeze(model, VARIANTS[variant])
    return model


def initial_weights(variant: str) -> Lines:
    """By part, of one variant for each mixer: what is frozen and the recipe change no weight."""
    weights, own = parts(built(variant, "paper")), parts(built(variant, "paper", BY_DEFAULT))
    return {f"initial {variant}: {part}": summary(weights[part]) for part in weights} | {
        f"initial {variant}: {part} by default": summary(own[part]) for part in own
    }


def matrices(recipe: str) -> Lines:
    spec = RECIPES[recipe].matrix_spec(2, SHAPE)
    drawn = [mixing_matrix(spec, layer, range(SHAPE.heads)) for layer in range(SHAPE.layers)]
    return {
        f"matrices {recipe}: numbers": summary(drawn),
        f"matrices {recipe}: integers": fingerprint(spec, {0, SHAPE.layers - 1}, SHAPE.heads - 1),
    }


def training(variant: str, recipe: str) -> Lines:
    model = built(variant, recipe)
    logits, losses = train(model)
    lines: Lines = {
        "loss": losses,
        "logits": logits[:, [0, 16, 17, 18, 39], 7].flatten().tolist(),
    }
    for part, weights in parts(model).items():
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        if gradients:
            lines[f"gradient of {part}"] = summary(gradients)
    return {f"{variant} {recipe}: {key}": line for key, line in lines.items()}


def train(model: MixitLlama) -> tuple[torch.Tensor, list[float]]:
    """The last logits and all losses; the last gradients are left in the model."""
    tokens, positions = batch()
    losses = []
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens, positions)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        losses.append(loss.item())
        if step < STEPS - 1:
            optimizer.step()
    return logits, losses


def parts(model: MixitLlama) -> dict[str, list[torch.Tensor]]:
    found = defaultdict(list)
    for name, weight in model.named_parameters():
        found[part_of(name)].append(weight)
    return found


def summary(tensors: list[torch.Tensor]) -> list[float]:
    """The norm, and the product with cos(1), cos(2), ...: it changes if two elements change
    places."""
    flat = torch.cat([tensor.detach().double().flatten() for tensor in tensors])
    return [flat.norm().item(), (flat * torch.arange(1, len(flat) + 1).cos()).sum().item()]


def changed(now: list[float] | str, then: list[float] | str) -> bool:
    """Whether a line differs by more than rounding, measured by its largest number."""
    if isinstance(then, str) or len(now) != len(then):
        return now != then
    largest = max(map(abs, then))
    return any(abs(a - b) > TOLERANCE * largest for a, b in zip(now, then, strict=True))


def check(now: Lines) -> None:
    recorded: Lines = json.loads(FILE.read_text())
    group = next(iter(now)).split(":")[0]
    then = {key: line for key, line in recorded.items() if key.split(":")[0] == group}
    assert now.keys() == then.keys()
    differences = [
        f"{key}\n  recorded {then[key]}\n  now      {line}"
        for key, line in now.items()
        if changed(line, then[key])
    ]
    assert not differences, "\n".join(["", *differences])


@pytest.mark.parametrize("variant", ONE_PER_MIXER)
def test_initial_weights_are_as_recorded(variant: str) -> None:
    check(initial_weights(variant))


@pytest.mark.parametrize("recipe", RECIPES)
def test_matrices_are_as_recorded(recipe: str) -> None:
    check(matrices(recipe))


@pytest.mark.parametrize(("variant", "recipe"), MODELS)
def test_training_is_as_recorded(variant: str, recipe: str) -> None:
    check(training(variant, recipe))


def record() -> None:
    """Write recorded.json. Lines that differ by no more than rounding stay as they are."""
    recorded: Lines = json.loads(FILE.read_text()) if FILE.exists() else {}
    now: Lines = {}
    for group in (
        *map(initial_weights, ONE_PER_MIXER),
        *map(matrices, RECIPES),
        *(training(*model) for model in MODELS),
    ):
        now |= group
    kept = {k: v for k, v in recorded.items() if k in now and not changed(now[k], v)}
    lines = [f"{json.dumps(key)}: {json.dumps(line)}" for key, line in (now | kept).items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} lines in {FILE}, {len(lines) - len(kept)} of them changed")


if __name__ == "__main__":
    record()

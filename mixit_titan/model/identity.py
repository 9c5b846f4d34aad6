"""What a checkpoint and the model that loads it must agree on.

Mixing matrices are not saved. Their seed and recipe are, along with a fingerprint of the integers
they are drawn from, so that a change to the generator is noticed too. The same holds for the maps
of the embedding mixer.
"""

from dataclasses import asdict
from typing import Any

from mixit_titan.kernels.fingerprint import fingerprint, maps_fingerprint
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.pairs import OUTER_PARTS
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack, read_stack, uniform

_NOT_STRUCTURE = {"init_std", "embedding_std"}  # they say how a run began, not what a model is
_LATER = {"model.rope_factor": 1.0, "model.window": Shape.window, "model.mixing.noise": "gaussian"}
"""Fields that the first checkpoints lacked, with the values they had then: left out while
unchanged."""
_MAPS = "fingerprint of the maps"
FINGERPRINTS = ("fingerprint", _MAPS)


def identity(config: MixitLlama.Config) -> dict[str, Any]:
    """Return a flat description of the model, ready for JSON. Checkpoints append that of their
    data."""
    stack = config.stack
    described: dict[str, Any] = {
        "mixer": stack.mixers,
        "frozen": list(stack.frozen),
        "debug.seed": config.init_seed,
    }
    if len(stack.pairs) > 1:
        described["stack"] = stack.structure
    shape = asdict(config.shape).items()
    described |= {f"model.{key}": value for key, value in shape if key not in _NOT_STRUCTURE}
    described |= {f"model.mixing.{key}": value for key, value in asdict(config.recipe).items()}
    for key, value in _LATER.items():
        if described[key] == value:
            del described[key]
    if stack.mixes:
        described["model.mixing.seed"] = config.mixing_seed
    mixing, embedded = (_ends(config, mixer) for mixer in ("mixing", "embedding"))
    inner = config.first_mixing
    if inner is not None:
        described["fingerprint"] = fingerprint(inner.spec, mixing, inner.n_heads - 1)
    if embedded:
        elements = config.shape.width * config.shape.seq_len
        described[_MAPS] = maps_fingerprint(config.mixing_seed, embedded, elements)
    return described


def _ends(config: MixitLlama.Config, mixer: str) -> set[int]:
    """Return the first and the last layer with that mixer, or nothing if no layer has it."""
    pairs = enumerate(config.stack.fill(len(config.layers)))
    layers = [layer for layer, pair in pairs if pair.mixer == mixer]
    return {*layers[:1], *layers[-1:]}


def saved_stack(described: dict[str, Any], layers: int) -> Stack:
    """Return the stack of a model from what `identity` wrote."""
    if "stack" not in described:
        return uniform(described["mixer"], described["frozen"])
    outer = [part for part in described["frozen"] if part in OUTER_PARTS]
    return read_stack(described["stack"], layers, outer)


def differences(saved: dict[str, Any], ours: dict[str, Any], *, ignore: set[str]) -> list[str]:
    """Say `model.mixing.seed is 1 there and 0 here` for each key that differs. `KEY.name` is the
    display name of KEY's value: it is shown with the value, and is not compared."""
    if _MAPS not in saved:  # the first checkpoints with maps did not record it
        ignore = ignore | {_MAPS}
    compared = [key for key in saved | ours if key not in ignore and not key.endswith(".name")]
    keys = [key for key in compared if saved.get(key) != ours.get(key)]
    causes = [key for key in keys if key not in FINGERPRINTS and not key.endswith(" of the data")]
    return [
        f"{key} is {_said(saved, key)} there and {_said(ours, key)} here" for key in causes or keys
    ]


def _said(described: dict[str, Any], key: str) -> str:
    value, name = described.get(key, _LATER.get(key)), described.get(f"{key}.name")
    return repr(value) if name is None else f"{name!r} ({value})"

"""What a checkpoint must agree on with the model that loads it.

A mixing matrix is not saved. Its seed and recipe are, with a fingerprint of integers behind it, so
that a change of the generator is noticed too.
"""

from dataclasses import asdict
from typing import Any

from mixit_titan.kernels.fingerprint import fingerprint
from mixit_titan.model.llama import MixitLlama

_NOT_STRUCTURE = {"init_std", "embedding_std"}  # they say how a run began, not what the model is
_LATER = {"model.rope_factor": 1.0, "model.mixing.noise": "gaussian"}
"""Fields that the first checkpoints did not have, and what they were then: left out where they
still are."""


def identity(config: MixitLlama.Config) -> dict[str, Any]:
    """A flat description of the model, ready for JSON. In a checkpoint that of its data follows."""
    described: dict[str, Any] = {
        "mixer": config.variant.mixer,
        "frozen": list(config.variant.frozen),
        "debug.seed": config.init_seed,
    }
    shape = asdict(config.shape).items()
    described |= {f"model.{key}": value for key, value in shape if key not in _NOT_STRUCTURE}
    described |= {f"model.mixing.{key}": value for key, value in asdict(config.recipe).items()}
    for key, value in _LATER.items():
        if described[key] == value:
            del described[key]
    if config.variant.mixer == "mixing":
        inner = config.layers[0].attention.inner_attention
        described["model.mixing.seed"] = config.mixing_seed
        described["fingerprint"] = fingerprint(
            inner.spec, {0, len(config.layers) - 1}, inner.n_heads - 1
        )
    return described


def differences(saved: dict[str, Any], ours: dict[str, Any], *, ignore: set[str]) -> list[str]:
    """`model.mixing.seed is 1 there and 0 here`, one per key that differs. `KEY.name` is what the
    value of KEY is called: it is said with the value, and may differ."""
    compared = [key for key in saved | ours if key not in ignore and not key.endswith(".name")]
    keys = [key for key in compared if saved.get(key) != ours.get(key)]
    causes = [key for key in keys if key != "fingerprint" and not key.endswith(" of the data")]
    return [
        f"{key} is {_said(saved, key)} there and {_said(ours, key)} here" for key in causes or keys
    ]


def _said(described: dict[str, Any], key: str) -> str:
    value, name = described.get(key, _LATER.get(key)), described.get(f"{key}.name")
    return repr(value) if name is None else f"{name!r} ({value})"

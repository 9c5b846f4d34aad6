"""Settings by task: `paper` is Tables 8 and 9 and appendix C, `cpu` fits minutes on two cores.

What a preset does not name has the default of the task or of Settings. Where the paper does not say
how long it trained, the steps are ours.
"""

from typing import Any

from mixit_titan.errors import unknown

_PAPER = {"init_std": 0.02, "embedding_std": 0.02, "weight_decay": 0.01, "warmup": 500}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {
        "addition": {"digits": 4, "width": 64, "heads": 16, "lr": 3e-3, "steps": 2000},
        "retrieval": {"pairs": 10, "vocab": 64, "width": 64, "lr": 3e-3, "steps": 2000},
        "hop": {
            **{"hops": 4, "length": 32, "width": 64, "layers": 3, "lr": 3e-3, "batch": 64},
            **{"steps": 3000, "test": 500},
        },
        "modular": {
            **{"modulus": 31, "train": 768, "test": 0, "width": 64, "lr": 3e-3, "steps": 3000},
            **{"weight_decay": 0.3},
        },
        "dyck": {"length": 20, "width": 64, "heads": 16, "lr": 3e-3, "steps": 1500},
        "memorization": {
            **{"keys": 128, "values": 512, "width": 64, "lr": 5e-3, "test": 0, "batch": 256},
            **{"steps": 3000, "eval_every": 1000},
        },
        "yelp": {
            **{"length": 32, "vocab": 4096, "width": 64, "lr": 1e-3, "test": 0, "batch": 64},
            **{"steps": 500, "eval_every": 100},
        },
        "imitation": {"target_width": 16, "vocab": 64, "length": 20, "width": 64, "steps": 1500},
    },
    "paper": {
        "addition": {
            **_PAPER,
            "digits": 10,
            "train": 50_000,
            "test": 4000,
            "layers": 8,
            "width": 512,
            "heads": 64,
            "lr": 1e-3,
            "batch": 128,
            "steps": 20_000,
        },
        "retrieval": {
            **_PAPER,
            "pairs": 30,
            "vocab": 256,
            "train": 40_000,
            "test": 4000,
            "layers": 2,
            "width": 1024,
            "heads": 4,
            "lr": 1e-4,
            "batch": 1024,
            "steps": 20_000,
        },
        "hop": {
            **_PAPER,
            "hops": 16,
            "length": 100,
            "letters": 4,
            "train": 100_000,
            "test": 100,
            "layers": 5,
            "width": 512,
            "heads": 8,
            "lr": 1e-4,
            "batch": 128,
            "steps": 5000,
        },
        "modular": {
            **_PAPER,
            "modulus": 599,
            "train": 40_000,
            "test": 0,
            "layers": 2,
            "width": 512,
            "heads": 32,
            "lr": 1e-3,
            "batch": 256,
            "steps": 20_000,
            "eval_every": 1000,
        },
        "dyck": {
            **_PAPER,
            "length": 40,
            "train": 100_000,
            "test": 4000,
            "layers": 4,
            "width": 512,
            "heads": 64,
            "lr": 1e-3,
            "batch": 512,
            "steps": 10_000,
        },
        "memorization": {
            **_PAPER,
            "keys": 512,
            "values": 512,
            "vocab": 1024,
            "test": 0,
            "layers": 2,
            "width": 1024,
            "heads": 4,
            "lr": 1e-3,
            "batch": 256,
            "steps": 20_000,
            "eval_every": 2000,
        },
        "yelp": {
            **_PAPER,
            "length": 256,
            "vocab": 16384,
            "test": 0,
            "layers": 4,
            "width": 1024,
            "heads": 16,
            "lr": 5e-4,
            "batch": 256,
            "steps": 10_000,
            "eval_every": 1000,
        },
        "imitation": {
            **_PAPER,
            "target_width": 32,
            "vocab": 1024,
            "length": 40,
            "layers": 2,
            "width": 512,
            "heads": 4,
            "lr": 1e-3,
            "batch": 128,
            "steps": 10_000,
        },
    },
}


def preset_values(preset: str, task: str, variant: str) -> dict[str, Any]:
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    return PRESETS[preset][task] | {"variant": variant}

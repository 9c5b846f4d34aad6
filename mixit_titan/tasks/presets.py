"""Settings by task: `paper` is Table 9 and appendix C, or the paper that introduced a task; `cpu`
takes minutes on two cores.

Anything a preset does not name, or a complete task, has the default of the task (the paper's
difficulty) or of Settings.
"""

from typing import Any

from mixit_titan.errors import unknown
from mixit_titan.model.stack import says_mixing
from mixit_titan.tasks.choice import chosen_values

_COLUMNS = ("layers", "width", "heads", "lr", "batch", "steps", "train", "test")

# Table 9 was chosen for MixiT. Of the steps only hop's are the paper's; it does not give the
# others.
_PAPER = {
    "addition": (8, 512, 64, 1e-3, 128, 20_000, 50_000, 4000),
    "retrieval": (2, 1024, 4, 1e-4, 1024, 20_000, 40_000, 4000),
    "hop": (5, 512, 8, 1e-4, 128, 5000, 100_000, 100),
    "modular": (2, 512, 32, 1e-3, 256, 20_000, 40_000, 0),
    "dyck": (4, 512, 64, 1e-3, 512, 10_000, 100_000, 4000),
    "memorization": (2, 1024, 4, 1e-3, 256, 20_000, 0, 0),
    "yelp": (4, 1024, 16, 5e-4, 256, 10_000, 0, 0),
    # Not in the paper: this task is from Zhong and Andreas.
    "imitation": (2, 512, 4, 1e-3, 128, 10_000, 0, 2000),
}
_PAPER_COMMON = {
    **{"init_std": 0.02, "embedding_std": 0.02},
    **{"weight_decay": 0.01, "warmup": 500, "eval_every": 1000},
}
# Zoology's Figure 2: 64 epochs, the rate in the middle of its grid. MAD's protocol: 200 epochs, two
# layers, each with an MLP. Both from the configs of their code.
_OTHER_PAPERS = {
    "mqar": (2, 128, 1, 1e-3, 512, 12_500, 100_000, 3000),
    "mad_recall": (2, 128, 16, 5e-4, 128, 20_000, 12_800, 1280),
    "mad_fuzzy_recall": (2, 128, 16, 5e-4, 128, 20_000, 12_800, 1280),
    "mad_noisy_recall": (2, 128, 16, 5e-4, 128, 20_000, 12_800, 1280),
    "mad_selective_copying": (2, 128, 16, 5e-4, 128, 20_000, 12_800, 1280),
    "mad_compression": (2, 128, 16, 5e-4, 128, 20_000, 12_800, 1280),
    "mad_memorization": (2, 128, 16, 5e-4, 128, 400, 256, 1280),
}
_OTHER_COMMON = {"init_std": 0.02, "embedding_std": 0.02, "eval_every": 1000}

_CPU = {
    "addition": (2, 64, 4, 5e-3, 64, 800, 0, 800),
    "retrieval": (2, 64, 2, 2.5e-3, 64, 1600, 0, 1000),
    "hop": (3, 64, 2, 5e-3, 64, 1000, 0, 500),
    "modular": (2, 64, 4, 5e-3, 128, 1500, 768, 0),
    "dyck": (2, 64, 4, 5e-3, 64, 2000, 0, 1000),
    "memorization": (2, 16, 4, 1e-2, 512, 2000, 0, 0),
    "yelp": (2, 64, 4, 2e-3, 64, 500, 0, 0),
    "imitation": (2, 64, 4, 1e-3, 128, 1500, 0, 500),
    "mqar": (2, 64, 4, 3e-3, 64, 1500, 0, 500),
    "mad_recall": (2, 64, 4, 3e-3, 64, 600, 0, 500),
    "mad_fuzzy_recall": (2, 64, 4, 3e-3, 64, 800, 0, 500),
    "mad_noisy_recall": (2, 64, 4, 3e-3, 64, 600, 0, 500),
    "mad_selective_copying": (2, 64, 4, 3e-3, 64, 800, 0, 500),
    "mad_compression": (2, 64, 4, 3e-3, 64, 1200, 0, 500),
    "mad_memorization": (2, 64, 4, 3e-3, 64, 400, 0, 500),
    "induction": (2, 64, 4, 3e-3, 128, 1500, 0, 500),
    "sorting": (2, 64, 4, 3e-3, 64, 1000, 0, 500),
    "dyck_k": (2, 64, 4, 3e-3, 64, 1000, 0, 500),
    "parity": (2, 64, 4, 3e-3, 64, 1000, 0, 500),
    "modular_sum": (2, 64, 4, 3e-3, 64, 1000, 0, 500),
}
_AUTHORS_STD = {"init_std": 0.02, "embedding_std": 0.02}
_CPU_MORE: dict[str, dict[str, Any]] = {
    # If only embeddings are trained, they must be small, so that training soon changes them.
    "addition": {"digits": 4, "embedding_std": 0.1, "eval_every": 100, "target_accuracy": 0.995},
    # Two heads, and so wider ones: what frozen queries and keys can match has the rank of a head.
    "retrieval": {"pairs": 16, "vocab": 48, "eval_every": 100, "target_accuracy": 0.99},
    "hop": {"hops": 3, "length": 24, "eval_every": 100, "target_accuracy": 0.99},
    # With larger weights or embeddings all pairs are memorized before a rule is found.
    "modular": {"modulus": 31, "weight_decay": 1.0, **_AUTHORS_STD},
    "dyck": {"length": 20, "eval_every": 100, "target_accuracy": 0.995},
    "memorization": {
        **{"keys": 72, "values": 72, "vocab": 144, **_AUTHORS_STD},
        **{"eval_every": 500, "target_accuracy": 1.0},
    },
    "yelp": {"length": 32, "vocab": 4096, "embedding_std": 0.1, "eval_every": 100},
    "imitation": {"target_width": 16, "vocab": 64, "length": 20},
    "mqar": {"pairs": 16, "vocab": 128, "target_accuracy": 0.99},
    "mad_recall": {"length": 48, "eval_every": 100, "target_accuracy": 0.99},
    "mad_fuzzy_recall": {"length": 64, "target_accuracy": 0.99},
    "mad_noisy_recall": {"length": 48, "eval_every": 100, "target_accuracy": 0.99},
    "mad_selective_copying": {"length": 48, "copies": 8, "target_accuracy": 0.99},
    "mad_compression": {"length": 16, "target_accuracy": 0.99},
    "mad_memorization": {"target_accuracy": 0.99},
    # Short patterns in a large vocabulary are not found within so few steps.
    "induction": {"pattern": 8, "max_gap": 8, "vocab": 16, "target_accuracy": 0.99},
    "sorting": {"length": 16, "size": 32, "target_accuracy": 0.99},
    "dyck_k": {"length": 32, "target_accuracy": 0.99},
    "parity": {"length": 16, "target_accuracy": 0.99},
    "modular_sum": {"length": 16, "target_accuracy": 0.99},
}
# The matrices of the mixing mixer, which the other variants do not have: equation 2.3 in a plain
# block, at the largest size of the official recipe's heads. Its other knobs cost accuracy at these
# widths (docs/tasks.md).
_CPU_MIXING = {"recipe": "paper", "std": "length"}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {
        task: dict(zip(_COLUMNS, row, strict=True)) | _CPU_MORE.get(task, {})
        for task, row in _CPU.items()
    },
    "paper": {
        task: dict(zip(_COLUMNS, row, strict=True)) | common
        for table, common in ((_PAPER, _PAPER_COMMON), (_OTHER_PAPERS, _OTHER_COMMON))
        for task, row in table.items()
    },
}


def preset_values(preset: str, task: str, variant: str, *, chosen: bool = True) -> dict[str, Any]:
    """Return what all variants share, and what was `chosen` for this one from a grid that all
    had."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    values = PRESETS[preset].get(task, {}) | {"variant": variant}
    if preset == "cpu" and task in PRESETS[preset]:
        if says_mixing(variant):
            values |= _CPU_MIXING
        if chosen:
            values |= chosen_values(task, variant)
    return values

"""A worker that describes the machine. It prints one line of JSON."""

import hashlib
from typing import Any

import torch
from torchtitan.tools import utils

from mixit_titan.device import check_device, has_gpu
from mixit_titan.errors import one_sentence
from mixit_titan.files import json_text
from mixit_titan.versions import code_version, environment


def facts() -> dict[str, Any]:
    """Return the versions and the GPUs. `changes` is a hash of what is not committed."""
    code, difference = code_version()
    changes = hashlib.sha256(difference.encode()).hexdigest()[:12] if difference else None
    found = {**code, **environment(), "changes": changes, "gpus": 0}
    if not has_gpu():
        return found
    about = torch.cuda.get_device_properties(0)
    peak = utils.get_peak_flops(about.name)
    return found | {
        "gpus": torch.cuda.device_count(),
        "gpu_memory_bytes": about.total_memory,
        "compute_capability": f"{about.major}.{about.minor}",
        "cuda": torch.version.cuda,
        "peak_flops": peak if peak == peak else None,  # NaN: unknown
    }


if __name__ == "__main__":
    with one_sentence():
        check_device()
        print(json_text(facts()))

"""The worker of parity, with a kernel for stored matrices that multiplies by 1.1."""

from typing import Any

import torch

from mixit_titan.gpu_check.compare_forms import compare
from mixit_titan.gpu_check.process import answer
from mixit_titan.kernels import stored

_right = stored.mix_stored


def _wrong(*arguments: Any) -> torch.Tensor:
    return 1.1 * _right(*arguments)


if __name__ == "__main__":
    stored.mix_stored = _wrong
    answer(compare)

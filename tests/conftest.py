import os

# Some sandboxes advertise AMX and do not let it run: a bfloat16 product would kill the process.
# oneDNN reads this when torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from collections.abc import Iterator

import pytest

import mixit_titan  # noqa: F401


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A run in this process sets RANK and its like; the next test must not inherit them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)

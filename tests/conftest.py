import os
import tempfile

# Some sandboxes advertise AMX and do not let it run: a bfloat16 product would kill the process.
# oneDNN reads this when torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# What runs tokenise on the way is kept for this session only.
_CACHE = tempfile.TemporaryDirectory(prefix="mixit_titan_tests_")
os.environ["XDG_CACHE_HOME"] = _CACHE.name

from collections.abc import Iterator

import pytest

from mixit_titan.model.variants import VARIANTS
from tests.runtime.conftest import Runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Every variant trained on one rank, eager."""
    made = Runs(tmp_path_factory.mktemp("runs"))
    made.train(1, {name: (name, []) for name in VARIANTS})
    return made


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A run in this process sets RANK and its like; the next test must not inherit them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)

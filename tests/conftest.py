import os
from collections.abc import Iterator

import pytest

import mixit_titan  # noqa: F401  before torchtitan, as the package itself wants it


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A run in this process sets RANK and its like; the next test must not inherit them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)

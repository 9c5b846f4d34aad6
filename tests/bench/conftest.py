import pytest

from mixit_titan.bench.settings import Point
from mixit_titan.model.shapes import Shape

TINY = Shape(width=32, layers=2, heads=4, hidden=64, vocab=48, seq_len=16)


@pytest.fixture
def point() -> Point:
    return Point(shape=TINY, batch=2)

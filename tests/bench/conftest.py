"""Points made from a user's words, and the process group of one rank for their trainers."""

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from mixit_titan.bench.arguments import read_arguments
from mixit_titan.bench.runs import read_point
from mixit_titan.bench.settings import Point
from mixit_titan.runtime.launch import launch

TINY = "--width 32 --layers 2 --heads 4 --hidden 64 --vocab 48 --seq-len 16 --batch 2"


def make_point(words: str = "", *, ranks: int = 1) -> Point:
    return read_point(read_arguments(f"{TINY} {words}".split()), ranks)


@pytest.fixture
def point() -> Point:
    return make_point()


@pytest.fixture
def one_rank() -> Iterator[None]:
    launch(1, [], lambda: None)  # which sets the environment of a rank
    yield
    if dist.is_initialized():
        dist.destroy_process_group()

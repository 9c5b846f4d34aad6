"""Torch and torchtitan, whose imports most commands begin with."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without looking for garbage: modules stay, and to look through them again and again
    takes a quarter of the time. Nor does any later search look through them. Does nothing where
    torch has been imported, and much else may be there."""
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()

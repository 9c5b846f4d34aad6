"""mixit_titan: Llama variants with random attention, as a torchtitan plugin.

Importing the package prepares torchtitan for the machine at hand, because torchtitan reads its
device at import time.
"""

__version__ = "0.1.0"

from mixit_titan.runtime.device import prepare_torchtitan

prepare_torchtitan()

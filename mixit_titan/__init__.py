"""mixit_titan: Llama variants with random attention, as a torchtitan plugin.

Importing the package is cheap. Whatever needs torchtitan prepares it first (device.py).
"""

__version__ = "0.1.0"

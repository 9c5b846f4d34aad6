"""mixit_titan: Llama variants with random attention, as a torchtitan plugin.

Importing the package is cheap. Modules that need torchtitan prepare it first (device.py).
"""

__version__ = "0.1.0"

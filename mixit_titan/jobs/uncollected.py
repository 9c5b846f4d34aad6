"""Imported first by the server that jobs are forked from: garbage collection is off while it
imports the rest, as in imports.py. A job turns it on again."""

import gc
import sys

if "torch" not in sys.modules:  # elsewhere an import has no side effect
    gc.disable()

"""Imported first by the server that jobs are forked from: what comes after it is imported without
looking for garbage, as in imports.py. A job looks again."""

import gc

gc.disable()

"""Where things are kept that can be made again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "mixit_titan"

"""Which code a run was submitted with."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mixit_titan import __version__


def code_version() -> tuple[dict[str, Any], str]:
    """Versions and commit, and the difference to that commit (empty outside of a checkout)."""
    commit = _git("rev-parse", "HEAD")
    difference = _git("diff", "HEAD") if commit else ""
    return {
        "mixit_titan": __version__,
        "commit": commit.strip() or None,
        "changed": bool(difference),
        "torchtitan": version("torchtitan"),
        "torch": version("torch"),
        "python": sys.version.split()[0],
    }, difference


def _git(*arguments: str) -> str:
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():  # installed, it may lie within a checkout of something else
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""

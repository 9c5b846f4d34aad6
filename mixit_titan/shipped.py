"""The TOML files that come with the project."""

from pathlib import Path


def shipped_configs() -> dict[str, Path]:
    """Name -> file. They lie beside the package in a checkout, and inside it once installed."""
    package = Path(__file__).parent
    for folder in (package / "train_configs", package.parent / "train_configs"):
        files = {file.stem: file for file in sorted(folder.glob("*.toml"))}
        if files:
            return files
    return {}

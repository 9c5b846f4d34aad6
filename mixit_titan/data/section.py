"""[data] of a config file -> a prepared folder and its tokenizer."""

from dataclasses import dataclass
from pathlib import Path

from mixit_titan.data.packing import Packing
from mixit_titan.data.prepared import prepared_folder
from mixit_titan.data.shards import Manifest, is_prepared, read_manifest
from mixit_titan.data.sources import STDLIB
from mixit_titan.data.tokenizers import build_tokenizer, fingerprint, saved_tokenizer
from mixit_titan.data.verification import check_tokenizer, verify
from mixit_titan.errors import ConfigError


@dataclass(kw_only=True)
class DataSection:
    path: str = STDLIB
    """A folder that `mixit-titan prepare` wrote; or a text file, a folder of them or `stdlib`,
    which are tokenised once and kept."""
    tokenizer: str | None = None
    """Default: the one that a prepared folder was made with; `bytes` for a text."""
    packing: Packing = "stream"
    seed: int = 0
    """Of the order of the rows."""
    workers: int = 0
    """Processes of each rank that read ahead."""


def prepared_data(section: DataSection) -> tuple[str, str]:
    """The folder, found to be whole, and the name of its tokenizer. A text is tokenised first."""
    if not is_prepared(section.path) and any(Path(section.path).glob("*.tokens")):
        read_manifest(section.path)  # which says that there is none
    folder = prepared_folder(section.path, section.tokenizer or "bytes")
    manifest = verify(folder)
    if section.tokenizer is None:
        check_tokenizer(folder, manifest)
    else:
        _check_same(section.tokenizer, manifest, folder)
    return str(folder), section.tokenizer or saved_tokenizer(folder) or "bytes"


def _check_same(name: str, manifest: Manifest, folder: Path) -> None:
    if fingerprint(build_tokenizer(name)) != manifest.tokenizer.fingerprint:
        raise ConfigError(
            f"the tokenizer {name!r} is not the one that {folder} was prepared with, which is "
            f"{manifest.tokenizer.name!r}: take data.tokenizer out of the config (on the "
            "command line: --data.tokenizer=), or prepare the text again"
        )

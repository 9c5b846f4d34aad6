"""Corpora by name: FineWeb-edu, WikiText, the standard library's sources, or local and remote
files."""

import difflib
import sysconfig
from pathlib import Path

from mixit_titan.data.corpus import Corpus, wikitext_splits
from mixit_titan.data.files import LocalFiles, local_files
from mixit_titan.data.hub import HubFiles, hub_files
from mixit_titan.data.readers import KINDS
from mixit_titan.data.splits import HELD_OUT
from mixit_titan.data.stores import StoreFiles
from mixit_titan.errors import ConfigError

STDLIB = "stdlib"
FINEWEB = "fineweb-edu"
WIKITEXT = ("wikitext-103", "wikitext-2")
_SUBSET = "sample-10BT"
_PAPER = {"train": 1_048_576, "validation": 4_096}


def find_corpus(
    name: str,
    *,
    local: str | None = None,
    subset: str | None = None,
    text_key: str = "text",
    train_documents: int | None = None,
    validation_documents: int | None = None,
) -> Corpus:
    """The corpus with this name, path or URL. `local` is a folder with the files of a corpus from
    the hub."""
    counts = {"train_documents": train_documents, "validation_documents": validation_documents}
    for key, count in counts.items():
        if count is not None and count < 1:
            raise ConfigError(f"--{key.replace('_', '-')} is {count}: it must be at least 1")
    on_hub = name == FINEWEB or name in WIKITEXT
    if local is not None and not on_hub:
        raise ConfigError(f"--local is for {FINEWEB}, {' and '.join(WIKITEXT)}: give only the path")
    if subset is not None and (name != FINEWEB or local is not None):
        raise ConfigError(f"--subset is only for {FINEWEB} from the hub")
    if name == FINEWEB:
        counts["train_documents"] = train_documents or _PAPER["train"]
        few = min(_PAPER["validation"], _held_out(counts["train_documents"]))
        counts["validation_documents"] = validation_documents or few
        files = _local(local, "--local") if local else fineweb_files(subset or _SUBSET)
    elif name in WIKITEXT:
        files = _wikitext_files(name, local)
    elif name == STDLIB:
        files = _standard_library()
    elif "://" in name:
        files = hub_files(name) if name.startswith("hf://") else StoreFiles(name)
    else:
        files = _local(name)
    if not on_hub and train_documents is not None and validation_documents is None:
        counts["validation_documents"] = _held_out(train_documents)
    elif not on_hub and validation_documents is not None and train_documents is None:
        raise ConfigError("--validation-documents needs --train-documents: give both")
    place = name if on_hub or name == STDLIB or "://" in name else str(Path(name).resolve())
    options = {
        "--local": None if local is None else str(Path(local).resolve()),
        "--subset": subset,
        "--text-key": None if text_key == "text" else text_key,
        "--train-documents": train_documents,
        "--validation-documents": validation_documents,
    }
    words = [place]
    for key, value in options.items():
        words += [] if value is None else [key, str(value)]
    return Corpus(
        name=place.rstrip("/").rpartition("/")[2],
        files=files,
        text_key=text_key,
        articles=name in WIKITEXT,
        words=tuple(words),
        **counts,
    )


def _held_out(train_documents: int) -> int:
    return max(1, train_documents // HELD_OUT)


def fineweb_files(subset: str) -> HubFiles:
    """A subset of FineWeb-edu: `sample-10BT`, `sample-100BT`, `sample-350BT`, `default` (all), or a
    crawl such as `CC-MAIN-2024-10`."""
    if subset.startswith("sample-"):
        folder = subset.replace("-", "/", 1)
    else:
        folder = "data" if subset == "default" else f"data/{subset}"
    return HubFiles("HuggingFaceFW/fineweb-edu", folder)


def _wikitext_files(name: str, local: str | None) -> LocalFiles | HubFiles:
    if local is None:
        return HubFiles("Salesforce/wikitext", f"{name}-raw-v1")
    root = _existing(local, "--local")
    inside = root / f"{name}-raw-v1"  # as the hub has it
    files = local_files(inside if inside.is_dir() else root, (*KINDS, ".raw", ".tokens"))
    wikitext_splits(files.names, local)
    return files


def _standard_library() -> LocalFiles:
    root = Path(sysconfig.get_path("stdlib"))
    return LocalFiles(root, tuple(sorted(file.name for file in root.glob("*.py"))))


def _local(path: str, flag: str = "") -> LocalFiles:
    return local_files(_existing(path, flag))


def _existing(path: str, flag: str = "") -> Path:
    if path and Path(path).exists():  # an empty one would be the working directory
        return Path(path)
    if flag:
        raise ConfigError(f"{flag} {path!r} does not exist: name the folder with the files")
    names = (STDLIB, FINEWEB, *WIKITEXT)
    near = difflib.get_close_matches(path, names, n=1)
    raise ConfigError(
        f"{path!r} does not exist: did you mean {near[0]!r}?"
        if near
        else f"{path!r} does not exist: name a file, a folder, or one of {', '.join(names)}"
    )

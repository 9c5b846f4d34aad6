"""The files of a dataset on the Hugging Face hub."""

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mixit_titan.data.readers import KINDS, reading_order
from mixit_titan.errors import ConfigError

_SECONDS = 10  # that the hub may take to answer
_URL = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?")


@dataclass(frozen=True)
class HubFiles:
    """Those below one folder of a dataset, or one file of it."""

    repo: str
    folder: str
    revision: str | None = None
    """Default: the newest."""
    kinds: tuple[str, ...] = (".parquet",)
    """How the names end of those that are read."""

    @functools.cached_property
    def _snapshot(self) -> tuple[str, tuple[str, ...]]:
        import httpx
        from huggingface_hub import HfApi

        try:
            info = HfApi().dataset_info(self.repo, revision=self.revision, timeout=_SECONDS)
        except (httpx.HTTPError, OSError) as error:
            raise self.unreachable(error) from None
        found = [sibling.rfilename for sibling in info.siblings]
        top = self.folder.strip("/")
        names = [n for n in found if not top or n == top or n.startswith(top + "/")]
        names = reading_order(name for name in names if name.endswith(self.kinds))
        if not names:
            kinds = ", ".join(self.kinds)
            raise ConfigError(f"the dataset {self.repo} has no {kinds} in {self.folder!r}")
        return info.sha, names

    @property
    def names(self) -> tuple[str, ...]:
        return self._snapshot[1]

    def describe(self) -> dict[str, Any]:
        asked = {} if self.revision is None else {"revision": self.revision}
        return {"repo": self.repo, "folder": self.folder} | asked

    def state(self) -> str:
        """The revision of the dataset."""
        return self._snapshot[0]

    def cached(self, name: str) -> Path | None:
        """The file, where the hub's own cache has it."""
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.repo, name, revision=self.state(), repo_type="dataset")
        return Path(found) if isinstance(found, str) else None

    def fetch(self, name: str, part: Path) -> None:
        """Fetch what `part` has not yet of a file. Closed connections are opened again, and servers
        that send more than was asked for are understood, by huggingface_hub."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers, disable_progress_bars

        disable_progress_bars("huggingface_hub.http_get")  # there is one for the documents
        url = hf_hub_url(self.repo, name, repo_type="dataset", revision=self.state())
        about = get_hf_file_metadata(url, timeout=_SECONDS)
        if part.exists() and about.size is not None and part.stat().st_size > about.size:
            part.unlink()
        with part.open("ab") as file:
            http_get(
                url,
                file,
                resume_size=file.tell(),
                headers=build_hf_headers(),
                expected_size=about.size,
            )
        if re.fullmatch("[0-9a-f]{64}", about.etag or ""):  # of large files, their checksum
            with part.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != about.etag:
                part.unlink()
                raise OSError("its checksum is not the one that the hub says")

    def unreachable(self, error: Exception) -> ConfigError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return ConfigError(
            f"the dataset {self.repo} cannot be fetched from the hub ({reason}): try again, or "
            "fetch its files elsewhere and name their folder (of FineWeb-edu and WikiText: --local)"
        )


def hub_files(url: str) -> HubFiles:
    """`hf://datasets/OWNER/NAME[@REVISION]/FOLDER`."""
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ConfigError(f"{url} names no dataset: write hf://datasets/OWNER/NAME/FOLDER")
    repo, revision, folder = parts.groups()
    return HubFiles(repo, folder or "", revision and unquote(revision), KINDS)

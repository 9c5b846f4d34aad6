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

_SECONDS = 10  # for the hub to answer
_URL = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?")


@dataclass(frozen=True)
class HubFiles:
    """The files below one folder of a dataset, or a single file."""

    repo: str
    folder: str
    revision: str | None = None
    """Default: the newest."""
    kinds: tuple[str, ...] = (".parquet",)
    """The endings of the files that are read."""

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
        """The names of all files."""
        return self._snapshot[1]

    def describe(self) -> dict[str, Any]:
        """What identifies the files in the settings of a corpus."""
        asked = {} if self.revision is None else {"revision": self.revision}
        return {"repo": self.repo, "folder": self.folder} | asked

    def state(self) -> str:
        """The revision of the dataset."""
        return self._snapshot[0]

    def cached(self, name: str) -> Path | None:
        """The path of a file in the hub's own cache, or None."""
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.repo, name, revision=self.state(), repo_type="dataset")
        return Path(found) if isinstance(found, str) else None

    def fetch(self, name: str, part: Path) -> None:
        """Fetch the rest of a file into `part`. huggingface_hub reopens closed connections and
        handles servers that send more than was requested."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers, disable_progress_bars

        disable_progress_bars("huggingface_hub.http_get")  # there already is one for the documents
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
        if re.fullmatch("[0-9a-f]{64}", about.etag or ""):  # for large files it is their checksum
            with part.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != about.etag:
                part.unlink()
                raise OSError("its checksum is not the one given by the hub")

    def unreachable(self, error: Exception) -> ConfigError:
        """The error for a dataset that cannot be fetched."""
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return ConfigError(
            f"the dataset {self.repo} cannot be fetched from the hub ({reason}): try again, or "
            "download its files elsewhere and name their folder (FineWeb-edu, WikiText: --local)"
        )


def hub_files(url: str) -> HubFiles:
    """The files of a URL: `hf://datasets/OWNER/NAME[@REVISION]/FOLDER`."""
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ConfigError(f"{url} is not a dataset: write hf://datasets/OWNER/NAME/FOLDER")
    repo, revision, folder = parts.groups()
    return HubFiles(repo, folder or "", revision and unquote(revision), KINDS)

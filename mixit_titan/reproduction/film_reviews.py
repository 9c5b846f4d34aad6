"""Real reviews for machines that cannot reach the hub: film review snippets, not Yelp.

They are in the source archive of vaderSentiment 3.3.2 (Hutto and Gilbert, 2014), which pip
downloads from the package index that it is configured for. pip accepts only the archive with the
hash below, and runs its setup.py for the metadata; nothing is installed.
"""

import csv
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from mixit_titan.errors import ConfigError
from mixit_titan.files import replace_file
from mixit_titan.reading import read_bytes

NAME = "film_reviews.csv"
PACKAGE = "vaderSentiment==3.3.2"
SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
_INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
_SNIPPETS = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
_LARGEST = 2**24  # bytes of the archive, and of each file in it
_PATIENCE = 120  # seconds
_OTHERWISE = "check pip's index, or name a file with --reviews"


def film_reviews(folder: Path) -> Path:
    """A CSV file of label and text in `folder`; it is downloaded once."""
    path = folder / NAME
    if not path.is_file():
        with tempfile.TemporaryDirectory() as downloads:
            _download(Path(downloads))
            rows = read_snippets(Path(downloads) / "vaderSentiment-3.3.2.tar.gz")
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda part: _write_csv(part, rows))
    return path


def read_snippets(archive: Path, sha256: str = SHA256) -> list[tuple[str, str]]:
    """Labels and texts: positive ratings, negative ratings; a rating of 0 is left out."""
    try:
        content = read_bytes(archive, limit=_LARGEST)
    except FileNotFoundError:
        raise _problem("pip did not save it") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _problem("its SHA-256 does not match")
    try:
        text = _member(_member(content, _INNER), _SNIPPETS).decode()
        lines = [line.split("\t") for line in text.splitlines() if line]
        rated = [(float(rating), snippet) for _, rating, snippet in lines]
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise _problem(f"it lacks the expected {_SNIPPETS}: {error}") from None
    return [("positive" if rating > 0 else "negative", said) for rating, said in rated if rating]


def _download(folder: Path) -> None:
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    words += ["--require-hashes", "--no-build-isolation", "--no-input", "--retries=1"]
    words += ["--disable-pip-version-check", f"--requirement={wanted}", f"--dest={folder}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        raise _problem(f"pip took more than {_PATIENCE} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise _problem(errors[-1].removeprefix("ERROR: ") if errors else "pip failed")


def _member(content: bytes, name: str) -> bytes:
    """Read a file of an archive into memory, without unpacking anything."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        member = archive.getmember(name)
        if not member.isreg() or member.size > _LARGEST:
            raise tarfile.TarError(f"{name} is not a file, or is too large")
        file = archive.extractfile(member)
        assert file is not None
        return file.read(_LARGEST)


def _write_csv(path: Path, rows: list[tuple[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("label", "text"), *rows])


def _problem(said: str) -> ConfigError:
    return ConfigError(f"the film reviews of {PACKAGE} are not available ({said}): {_OTHERWISE}")

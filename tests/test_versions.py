import os
import subprocess
from pathlib import Path

import pytest

from mixit_titan import versions as module
from mixit_titan.versions import code_version


@pytest.mark.parametrize("inside", ["mixit_titan", ".venv/lib/mixit_titan"])
def test_the_commit_is_that_of_the_projects_own_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """Installed, the package may lie within a checkout of something else."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # of a hook
        monkeypatch.delenv(name)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    git += ["-c", "commit.gpgsign=false"]
    (tmp_path / "file").write_text("before\n")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "a file"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "file").write_text("after\n")
    (tmp_path / inside).mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(tmp_path / inside / "versions.py"))
    version, difference = code_version()
    own = inside == "mixit_titan"
    assert (version["commit"] is not None) == version["changed"] == own
    assert ("+after" in difference) == own

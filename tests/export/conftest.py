"""Exported folders, read by a process that does not have this project."""

import json
import os
import subprocess
import sys
from pathlib import Path


def read(how: str, folders: list[Path], tmp_path: Path) -> dict[str, dict]:
    reader = Path(__file__).with_name("reader.py")
    environment = os.environ | {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(reader), how, str(tmp_path / "found.json"), *map(str, folders)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads((tmp_path / "found.json").read_text())

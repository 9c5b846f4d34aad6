"""The command, on this machine and where something is wrong."""

import getpass
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.doctor import command
from mixit_titan.doctor.check import Check, anonymous, guarded
from mixit_titan.doctor.graphics import Graphics
from mixit_titan.gpus import Gpus


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "doctor", *words])
    try:
        main()
    except SystemExit as exit_:
        return exit_.code
    return 0


def test_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Every check runs. What it says is this machine's: only what the tests need is expected."""
    code = call(monkeypatch, "--json", "--folder", str(tmp_path / "runs"))
    found = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in found["checks"]}
    assert not [name for name, check in checks.items() if "could not be checked" in check["fact"]]
    assert all(bool(check["advice"]) == (check["state"] != "ok") for check in checks.values())
    assert found["ok"] == (code == 0) == all(c["state"] != "wrong" for c in checks.values())
    for name in ("python", "torch", "torchtitan", "triton compiles", "disk"):
        assert checks[name]["state"] != "wrong", checks[name]
    assert {"driver", "device", "nccl", "cores", "memory", "slurm", "environment"} <= checks.keys()
    assert not list(tmp_path.iterdir())


def imitate(monkeypatch: pytest.MonkeyPatch, facts: Graphics | Exception) -> None:
    def read() -> Graphics:
        if isinstance(facts, Exception):
            raise facts
        return facts

    monkeypatch.setattr(command, "read_graphics", read)
    monkeypatch.setattr(command, "software", lambda gpus: [Check("python", "ok", "3.11.7")])


def test_an_old_driver_is_wrong_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    imitate(monkeypatch, Graphics(Gpus(8, "550.54.15"), torch="2.13.0+cu130", cuda="13.0"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert call(monkeypatch, "--folder", str(tmp_path)) == 1
    lines = capsys.readouterr().out.splitlines()
    (driver,) = [line for line in lines if re.match(r"wrong\s+driver ", line)]
    assert "550.54.15, and CUDA 13.0 needs 580 or newer: update the driver" in driver
    assert lines[-1].startswith("2 wrong, ")  # the driver, and the device


def test_a_broken_torch_is_a_warning_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    imitate(monkeypatch, ImportError("libcudart.so.13: cannot open shared object file"))
    assert call(monkeypatch, "--folder", str(tmp_path)) == 0
    said = capsys.readouterr().out
    assert "could not be checked (ImportError: libcudart.so.13: cannot open" in said
    assert re.search(r"^ok\s+cores", said, re.M)


def test_what_was_found_before_a_failure_is_kept() -> None:
    def work() -> Iterator[Check]:
        yield Check("a", "ok", "fine")
        raise ValueError

    assert [check.state for check in guarded("both", work)] == ["ok", "warning"]


def test_names_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu017.cluster.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    monkeypatch.setenv("HOME", "/home/alice")
    said = anonymous("/home/alice/runs on gpu017, /scratch/alice/x, malice, 10.0.3.17:29500")
    assert said == "~/runs on HOST, /scratch/USER/x, malice, ADDRESS:29500"
    assert anonymous("gpu017.cluster.example") == "HOST"
    assert anonymous("/tmp/torchinductor_alice") == "/tmp/torchinductor_USER"

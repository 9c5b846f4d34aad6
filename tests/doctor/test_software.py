"""What doctor says about Python, packages and compilers."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from mixit_titan.doctor.check import Check
from mixit_titan.doctor.software import (
    Ran,
    check_compiler,
    check_imports,
    check_python,
    check_triton,
    check_versions,
    try_compiler,
    try_imports,
)
from mixit_titan.doctor.tested import OLDEST_PYTHON, TESTED

ROOT = Path(__file__).parents[2]


def test_the_tested_versions_are_those_of_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line and line[0] != "#")
    assert {name: pinned[name] for name in TESTED} == TESTED
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]}"


def versions(**changes: str | None) -> dict[str, Check]:
    return {check.name: check for check in check_versions({**TESTED, **changes})}


@pytest.mark.parametrize(
    ("name", "version", "state"),
    [
        ("torch", "2.13.0+cu130", "ok"),
        ("torch", "2.14.0", "warning"),
        ("torch", "2.9.1", "wrong"),
        ("torch", None, "wrong"),
        ("torchtitan", "0.4.0", "wrong"),
        ("triton", "3.8.0", "warning"),
        ("transformers", None, "ok"),
    ],
)
def test_versions(name: str, version: str | None, state: str) -> None:
    check = versions(**{name: version})[name]
    assert check.state == state
    assert (f"pip install {name}=={TESTED[name]}" in check.advice) == (state != "ok")


def test_a_package_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_imports(try_imports()).state == "ok"
    monkeypatch.setitem(sys.modules, "mixit_titan.device", None)
    check = check_imports(try_imports())
    assert check.state == "wrong" and "mixit_titan.device" in check.fact


def test_python() -> None:
    assert check_python((3, 11, 7)).state == "ok"
    assert check_python((3, 10, 2)).state == "wrong"


def test_triton_matters_on_a_gpu() -> None:
    failed = Ran(False, "no ptxas")
    assert check_triton(failed, gpus=0).state == "warning"
    assert check_triton(failed, gpus=1).state == "wrong"
    assert "no ptxas" in check_triton(failed, gpus=1).fact
    assert check_triton(Ran(True, "a kernel runs"), gpus=1).state == "ok"


def test_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert check_compiler(try_compiler(), gpus=0).state == "ok"
    monkeypatch.setenv("CC", str(tmp_path / "nowhere"))
    missing = check_compiler(try_compiler(), gpus=0)
    assert missing.state == "warning" and "is not installed" in missing.fact
    assert check_compiler(try_compiler(), gpus=2).state == "wrong"
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho cannot find -lgomp >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert re.search("it fails: cannot find -lgomp", check_compiler(try_compiler(), 0).fact)

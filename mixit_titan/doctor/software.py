"""Python, packages and compilers."""

import importlib.metadata
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mixit_titan.doctor.check import Check, anonymous, judge, told
from mixit_titan.doctor.tested import OLDEST_PYTHON, TESTED
from mixit_titan.versions import code_version

_OPTIONAL = ("transformers",)  # for the tests of what `export` writes
_SECONDS = 180  # for a compiler on a busy machine


def check_code(found: Mapping[str, object]) -> Check:
    """Which version of our code this is; `found` comes from code_version()."""
    commit = str(found["commit"] or "no commit")[:12] + (", changed" if found["changed"] else "")
    return judge("mixit_titan", f"{found['mixit_titan']}, {commit}")


def check_python(version: tuple[int, ...]) -> Check:
    """Whether Python is new enough."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return judge(
        "python",
        ".".join(map(str, version[:3])),
        wrong=f"install Python {oldest} or newer" if version[:2] < OLDEST_PYTHON else None,
    )


def read_versions() -> dict[str, str | None]:
    """The installed versions of the packages that were tested."""
    found: dict[str, str | None] = {}
    for name in TESTED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def check_versions(found: Mapping[str, str | None]) -> Iterator[Check]:
    """Whether the installed versions are those that were tested."""
    for name, tested in TESTED.items():
        version, install = found[name], f"pip install {name}=={tested}"
        if version is None:
            yield judge(name, "not installed", wrong=None if name in _OPTIONAL else install)
        elif version.partition("+")[0] == tested:  # after the +: the device it was built for
            yield judge(name, f"{version}, as tested")
        else:
            exact = name == "torchtitan" or (name == "torch" and _older(version, tested))
            advice = f"only {tested} was tested: {install}"
            fact = f"{version}, tested with {tested}"
            yield judge(name, fact, wrong=advice if exact else None, warning=advice)


def _older(version: str, than: str) -> bool:
    """Whether a version is older, by its first two numbers: 2.9 is older than 2.13."""
    return [*map(int, version.split(".")[:2])] < [*map(int, than.split(".")[:2])]


@dataclass(frozen=True)
class Ran:
    """The outcome of a program that was tried."""

    ok: bool
    said: str
    """The last line that it printed."""


def _run(words: list[str], **options: object) -> Ran:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_SECONDS, **options
        )
    except FileNotFoundError:
        return Ran(False, f"{words[0]} is not installed")
    except subprocess.TimeoutExpired:
        return Ran(False, f"it did not end within {_SECONDS} s")
    lines = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
    return Ran(done.returncode == 0, anonymous(last))


def try_imports() -> Ran:
    """Import torch and torchtitan."""
    try:
        import mixit_titan.device  # noqa: F401  (torch, and torchtitan with our patches)
    except Exception as error:
        return Ran(False, told(error))
    return Ran(True, "torch and torchtitan")


def check_imports(ran: Ran) -> Check:
    """Whether torch and torchtitan can be imported."""
    advice = "nothing works without them: reinstall with `pip install -c constraints.txt`"
    return judge("imports", ran.said, wrong=None if ran.ok else advice)


def try_triton() -> Ran:
    """Compile a kernel in a separate process: a compiler or driver that crashes must not take us
    with it."""
    with tempfile.TemporaryDirectory() as folder:  # an empty cache
        environment = os.environ | {"TRITON_CACHE_DIR": folder}
        return _run([sys.executable, "-m", "mixit_titan.doctor.triton_probe"], env=environment)


def check_triton(ran: Ran, gpus: int) -> Check:
    """Whether Triton compiles."""
    advice = None
    if not ran.ok:
        advice = f"pip install triton=={TESTED['triton']}; on a GPU it needs a C compiler, too"
    return judge(
        "triton compiles",
        ran.said if ran.ok else f"it fails: {ran.said}",
        wrong=advice if gpus else None,
        warning=advice,
    )


def try_compiler() -> Ran:
    """Build a library with OpenMP, by the compiler that kernels/triangle.py uses."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-x", "c", "-fPIC", "-fopenmp", "-shared", "-", "-o", str(Path(folder) / "it.so")]
        made = _run([*compiler, *flags], input="int one(void) { return 1; }\n")
    if not made.ok:
        return made
    shown = subprocess.run([*compiler, "--version"], capture_output=True, text=True)
    return Ran(True, anonymous(shown.stdout.partition("\n")[0] or compiler[0]))


def check_compiler(ran: Ran, gpus: int) -> Check:
    """Whether there is a C compiler, which Triton needs on a GPU."""
    advice = None
    if not ran.ok:
        advice = "install gcc, or name another compiler in CC: "
        advice += "Triton needs it" if gpus else "without it mixing is slower on a CPU"
    fact = ran.said if ran.ok else f"it fails: {ran.said}"
    return judge("c compiler", fact, wrong=advice if gpus else None, warning=advice)


def software(gpus: int) -> Iterator[Check]:
    """All checks of software."""
    yield check_code(code_version()[0])
    yield check_python(sys.version_info[:3])
    yield from check_versions(read_versions())
    yield check_imports(try_imports())
    yield check_triton(try_triton(), gpus)
    yield check_compiler(try_compiler(), gpus)

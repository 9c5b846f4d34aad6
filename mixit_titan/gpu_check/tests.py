"""Section: the tests of tests/gpu, each function in its own process."""

import functools
import importlib.util
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from mixit_titan.gpu_check.check import Check, Verdict, failed, passed, skipped
from mixit_titan.gpu_check.process import Ended, module, run
from mixit_titan.gpu_check.session import ROOT, Session

SECTION = "tests"
_SECONDS = 1800  # per function: some train many times
_OPTIONS = ("--gpu", "-o", "addopts=", "-q", "-p", "no:cacheprovider")


def tests(session: Session) -> Iterator[Check]:
    """Yield a check for each test function."""
    if not (ROOT / "tests" / "gpu").is_dir():
        why = skipped("tests/gpu exists in a checkout only: run this command there")
        yield session.judged(SECTION, "tests/gpu", why)
        return
    if importlib.util.find_spec("pytest") is None:
        why = skipped("pytest is not installed: pip install 'mixit-titan[dev]'")
        yield session.judged(SECTION, "tests/gpu", why)
        return
    folder = session.folder(SECTION)
    ended = _pytest(folder / "collected.txt", "--collect-only", "tests/gpu")
    found = (folder / "collected.txt").read_text().splitlines()
    names = [*dict.fromkeys(line.split("[")[0] for line in found if "::" in line)]
    if ended.code != 0 or not names:
        yield session.judged(SECTION, "tests/gpu", failed(ended))
        return
    # Without a GPU all of them are skipped, and one process suffices to see it.
    groups = [names] if session.scale.rehearsal else [[name] for name in names]
    for group in groups:
        run_group = functools.cache(functools.partial(_run, folder, group))
        for name in group:
            shown = name.removeprefix("tests/gpu/")
            yield session.check(SECTION, shown, lambda r=run_group, name=name: r()[name])


def _pytest(log: Path, *arguments: str) -> Ended:
    return run(module("pytest", *_OPTIONS, *arguments), log, _SECONDS, folder=ROOT)


def _run(folder: Path, names: list[str]) -> dict[str, Verdict]:
    stem = names[0].split("::")[-1] if len(names) == 1 else "all"
    results = folder / f"{stem}.xml"
    results.unlink(missing_ok=True)
    ended = _pytest(folder / f"{stem}.txt", f"--junitxml={results}", *names)
    if not results.exists():
        return dict.fromkeys(names, failed(ended))
    cases: dict[str, list[ET.Element]] = {name: [] for name in names}
    for case in ET.parse(results).iter("testcase"):
        file = case.get("classname").replace(".", "/")
        cases[f"{file}.py::{case.get('name').split('[')[0]}"].append(case)
    return {name: _judge(found, ended) for name, found in cases.items()}


def _judge(cases: list[ET.Element], ended: Ended) -> Verdict:
    if not cases:
        return failed(ended)
    wrong = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    if wrong:
        why = wrong[0].find("failure")
        why = wrong[0].find("error") if why is None else why
        said = why.get("message", "").strip().splitlines() or ["no message"]
        return failed(f"{len(wrong)} of {len(cases)}: {wrong[0].get('name')}: {said[0]}")
    left_out = [c.find("skipped") for c in cases if c.find("skipped") is not None]
    if len(left_out) == len(cases):
        return skipped(left_out[0].get("message", ""))
    said = f"{len(cases) - len(left_out)} cases"
    return passed(f"{said}, {len(left_out)} skipped" if left_out else said)

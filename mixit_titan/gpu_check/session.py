"""One call of the command: where it writes, at which scale, and what an earlier call has passed."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mixit_titan.doctor.check import anonymous
from mixit_titan.gpu_check.check import Check, Verdict
from mixit_titan.gpu_check.process import Case, Ended, run_cases
from mixit_titan.gpu_check.scale import Scale

ROOT = Path(__file__).parents[2]
"""The root of the checkout, if this is one."""


class Session:
    """Runs checks, or takes them from an earlier call, and writes their output to a folder."""

    def __init__(self, out: Path, scale: Scale, earlier: list[Check]) -> None:
        """`earlier`: checks of the same code on the same machine. Those that passed are kept."""
        self.out, self.scale = out.resolve(), scale
        self._passed = {(c.section, c.name): c for c in earlier if c.state == "pass"}

    def folder(self, section: str) -> Path:
        return self.out / section

    def check(self, section: str, name: str, work: Callable[[], Verdict]) -> Check:
        """Return the check of an earlier call, or else what `work` finds now."""
        if (section, name) in self._passed:
            return self._passed[section, name]
        start = time.monotonic()
        return self.judged(section, name, work(), time.monotonic() - start)

    def cases(
        self,
        section: str,
        worker: str,
        cases: Mapping[str, Case],
        limit: float,
        judge: Callable[[str, Case | Ended], Verdict],
    ) -> Iterator[Check]:
        """Yield one check per case of a worker that calls kernels."""
        left = {}
        for name, case in cases.items():
            if (section, name) in self._passed:
                yield self._passed[section, name]
            else:
                left[name] = case
        names = iter(left)
        for _, found, seconds in run_cases(
            worker, [*left.values()], self.folder(section), limit, self.scale.kernels
        ):
            name = next(names)
            yield self.judged(section, name, judge(name, found), seconds)

    def judged(self, section: str, name: str, verdict: Verdict, seconds: float = 0.0) -> Check:
        said, figures = self.shown(verdict.said), self._shown_figures(verdict.figures)
        return Check(section, name, verdict.state, said, figures, round(seconds, 1))

    def _shown_figures(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._shown_figures(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._shown_figures(each) for each in value]
        return self.shown(value) if isinstance(value, str) else value

    def shown(self, text: str) -> str:
        """Return a line without names of this machine, since reports are pasted."""
        line = " ".join(text.split())
        for path, name in ((self.out, "OUT"), (ROOT, "."), (Path(sys.prefix), "PYTHON")):
            line = line.replace(str(path), name)
        return anonymous(re.sub(r"\s*\|\s*", " / ", line))  # a bar would end a Markdown cell

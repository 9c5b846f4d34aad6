"""gpu_report.md, to be pasted into an issue, and gpu_report.json, with every figure."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mixit_titan.files import write_json, write_text
from mixit_titan.gpu_check.check import Check
from mixit_titan.gpu_check.scale import Scale
from mixit_titan.gpu_check.section_tables import section_table, speeds
from mixit_titan.reading import json_if_good

JSON, MARKDOWN = "gpu_report.json", "gpu_report.md"
_WORDS = {"passed": "pass", "failed": "fail", "skipped": "skipped"}


@dataclasses.dataclass
class Report:
    """All checks so far, with the machine and the scale they ran at."""

    scale: Scale
    machine: dict[str, Any]
    """What machine.py prints."""
    checks: list[Check] = dataclasses.field(default_factory=list)

    def replace(self, check: Check) -> None:
        """Add a check in place of an earlier one of the same name."""
        name = (check.section, check.name)
        self.checks = [c for c in self.checks if (c.section, c.name) != name] + [check]

    def keep_only(self, section: str, names: set[str]) -> None:
        """Drop earlier checks of a section that no longer exist."""
        self.checks = [c for c in self.checks if c.section != section or c.name in names]

    def count(self) -> dict[str, int]:
        states = Counter(check.state for check in self.checks)
        return {word: states[state] for word, state in _WORDS.items()}

    def counted(self) -> str:
        return ", ".join(f"{number} {word}" for word, number in self.count().items())

    def write(self, out: Path, sections: Sequence[str]) -> None:
        """Write both files. `sections` are all that exist, including those that have not run
        yet."""
        found = {
            "rehearsal": self.scale.rehearsal,
            "machine": self.machine,
            "summary": self.count(),
            "checks": [dataclasses.asdict(check) for check in self.checks],
        }
        write_json(out / JSON, found)
        write_text(out / MARKDOWN, self.markdown(sections))

    def markdown(self, sections: Sequence[str]) -> str:
        parts = [_title(self.scale, self.machine), *_machine(self.machine), *self._summary()]
        not_run = []
        for name in sections:
            checks = [check for check in self.checks if check.section == name]
            if not checks:
                not_run.append(name)
                continue
            minutes = sum(check.seconds for check in checks) / 60
            parts.append(f"## {name} ({minutes:.1f} min)")
            parts += [section_table(name, self.scale, self.machine, checks)]
        if not_run:
            parts.append(f"Not run: {', '.join(not_run)}.")
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"

    def _summary(self) -> list[str]:
        minutes = sum(check.seconds for check in self.checks) / 60
        failures = [
            f"- {check.section}: {check.name}: {check.said}"
            for check in self.checks
            if check.state == "fail"
        ]
        throughput = [check for check in self.checks if check.section == "throughput"]
        return [
            f"**{self.counted()}** in {minutes:.0f} min",
            "\n".join(failures),
            speeds(throughput),
        ]


_FORM = {
    **{"rehearsal": bool, "machine": dict},
    "checks": [
        {"section": str, "name": str, "state": str, "said": str, "figures": dict, "seconds": float}
    ],
}


def read_checks(out: Path, scale: Scale, machine: dict[str, Any]) -> list[Check]:
    """Return the checks of an earlier call, if it had the same code and the same machine."""
    found = json_if_good(out / JSON, _FORM)
    if found is None or (found["rehearsal"], found["machine"]) != (scale.rehearsal, machine):
        return []
    keys = [field.name for field in dataclasses.fields(Check)]
    return [Check(*(check[key] for key in keys)) for check in found["checks"]]


def _title(scale: Scale, machine: dict[str, Any]) -> str:
    if scale.rehearsal:
        return "# GPU check: REHEARSAL without a GPU (toy sizes; its speeds mean nothing)"
    return f"# GPU check: {machine['gpus']} x {machine['device']}"


def _machine(machine: dict[str, Any]) -> list[str]:
    gpus = "no GPU"
    if machine["gpus"]:
        memory = f"{machine['gpu_memory_bytes'] / 2**30:.0f} GiB each"
        capability = f"compute capability {machine['compute_capability']}"
        gpus = f"{machine['gpus']} x {machine['device']}, {memory}, {capability}"
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "torchtitan", "python"))
    commit = machine["commit"] or "not a checkout"
    return [
        f"{gpus}; {machine['cores']} cores  \n"
        f"mixit_titan {machine['mixit_titan']} ({commit}), {versions}"
    ]

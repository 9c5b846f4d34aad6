"""Section: the kernels against the formula, for every flavor's heads, forward and backward."""

from collections.abc import Iterator
from itertools import product

from mixit_titan.gpu_check.check import Check, Verdict, failed, passed, skipped
from mixit_titan.gpu_check.process import Case, Ended
from mixit_titan.gpu_check.session import Session

SECTION = "parity"
WORKER = "mixit_titan.gpu_check.compare_forms"
TOLERANCE = {"largest": 0.02, "norm": 0.01}
"""Largest allowed relative errors. Rounding to bfloat16 explains about 0.008 and 0.004."""
_FORMS = {
    "stored": ("stored", "gaussian"),
    "sharded": ("sharded", "gaussian"),
    "drawn": ("generated", "gaussian"),
    "drawn signs": ("generated", "sign"),
}
"""Name -> `model.mixing.storage` and `model.mixing.noise`."""
_SECONDS = 300  # per case, including compilation


def parity(session: Session) -> Iterator[Check]:
    """Yield a check for each shape, length and form."""
    scale = session.scale
    cases = {
        f"{shape} ({heads} x {width}), length {length:,}, {name}": {
            "heads": heads,
            "width": width,
            "length": length,
            "form": form,
            "noise": noise,
        }
        for (shape, (heads, width)), length, (name, (form, noise)) in product(
            scale.parity_shapes.items(), scale.parity_lengths, _FORMS.items()
        )
    }
    yield from session.cases(
        SECTION, WORKER, cases, _SECONDS, lambda name, found: _judge(name, cases[name], found)
    )


def _judge(name: str, case: Case, found: Case | Ended) -> Verdict:
    shape, form = name.split(", length ")[0], name.rsplit(", ", 1)[1]
    figures = {**case, "shape": shape, "form": form}
    if isinstance(found, Ended):
        return failed(found, **figures)
    if "needed_bytes" in found:
        needed = f"{found['needed_bytes'] / 2**30:.0f} GiB"
        return skipped(f"needs {needed} of GPU memory", **figures)
    worst = {kind: max(errors[kind] for errors in found.values()) for kind in TOLERANCE}
    figures |= {"error": worst["norm"], "errors": found}
    said = f"largest error {worst['largest']:.4f}, error of the norm {worst['norm']:.4f}"
    wrong = [way for way, errors in found.items() if not _within(errors)]
    if wrong:
        return failed(f"{said}: too large in {'; '.join(wrong)}", **figures)
    return passed(said, **figures)


def _within(errors: dict[str, float]) -> bool:
    return all(errors[kind] < tolerance for kind, tolerance in TOLERANCE.items())

"""Section: tokens/s and MFU of the variants, measured by `mixit-titan bench`."""

import json
from collections.abc import Iterator

from mixit_titan.config.shipped import shipped_configs
from mixit_titan.gpu_check.check import Check, Verdict, failed, passed
from mixit_titan.gpu_check.estimated import estimated
from mixit_titan.gpu_check.process import module, run
from mixit_titan.gpu_check.runs import options
from mixit_titan.gpu_check.scale import CONFIG, VARIANTS
from mixit_titan.gpu_check.session import Session

SECTION = "throughput"
_SECONDS = 3600  # four variants, each compiled
_KEYS = ("variant", "tokens_per_s", "ratio", "mfu", "peak_memory_bytes")


def throughput(session: Session) -> Iterator[Check]:
    """Yield a check for one GPU, and one for all of them."""
    for ranks in sorted({1, session.scale.ranks}):
        name = session.scale.on(ranks)
        yield session.check(SECTION, name, lambda ranks=ranks: _measure(session, ranks))


def _measure(session: Session, ranks: int) -> Verdict:
    out = session.folder(SECTION) / f"ranks_{ranks}"
    result = out / "bench.json"
    result.unlink(missing_ok=True)
    command = module("mixit_titan", "bench", shipped_configs()[CONFIG], "--variants", *VARIANTS)
    # One rank alone is a measurement of its own.
    command += ["--nproc", str(ranks), "--no-alone", "--out", str(out)]
    command += options(session.scale.bench)
    ended = run(command, session.folder(SECTION) / f"ranks_{ranks}.txt", _SECONDS)
    if ended.code != 0 or not result.exists():
        return failed(ended)
    rows = [
        {key: row[key] for key in _KEYS} | _modeled(session, row["variant"], ranks)
        for row in json.loads(result.read_text())["variants"]
    ]
    figures = {"ranks": ranks, "rows": rows}
    missing = {*VARIANTS} - {row["variant"] for row in rows}
    if missing:
        return failed(f"{', '.join(sorted(missing))} are not in bench.json", **figures)
    said = ", ".join(f"{row['variant']} {row['tokens_per_s']:,.0f}" for row in rows)
    return passed(f"tokens/s: {said}", **figures)


def _modeled(session: Session, variant: str, ranks: int) -> dict[str, float | None]:
    """Return what `params` says about the same run; it says nothing about a toy's speed."""
    # The benchmark trains, and does nothing else.
    settings = {**session.scale.bench, "model.variant": variant, "validator.enable": "false"}
    said = estimated(session.scale, settings, ranks)
    return {
        "modeled_tokens_per_s": None if said.is_toy else said.tokens_per_s,
        "estimated_memory_bytes": said.memory.total,
    }

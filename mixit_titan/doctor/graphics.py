"""GPUs, their driver and links, and whether torch can use them."""

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mixit_titan.doctor.check import Check, judge
from mixit_titan.gpus import (
    Gpus,
    find_gpus,
    hidden,
    least_driver,
    nvidia_smi,
    too_old,
    why_unusable,
)

_QUERY = "name,memory.total,memory.free,compute_cap"
_CPU_MEANT = "nothing to do if the CPU is intended; else unset CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Card:
    """One GPU as nvidia-smi describes it."""

    name: str
    total: int
    """In MiB."""
    free: int | None
    """In MiB; None if nvidia-smi does not say, as for a GPU that is cut into slices."""
    capability: str
    """The compute capability, such as 9.0."""


@dataclass(frozen=True)
class Graphics:
    """What the system and torch say about GPUs."""

    gpus: Gpus
    cards: tuple[Card, ...] = ()
    """As nvidia-smi shows them, hidden or not."""
    listed: str = ""
    """The output of nvidia-smi -L."""
    topology: str = ""
    """The output of nvidia-smi topo -m."""
    torch: str = ""
    cuda: str | None = None
    """The CUDA that torch was built for; None: a build for the CPU."""
    architectures: tuple[str, ...] = ()
    """The architectures that torch was built for, such as sm_90."""
    usable: tuple[str, ...] = ()
    """Names of the GPUs that torch can use."""
    nccl: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def read_graphics() -> Graphics:
    """Ask the system, nvidia-smi and torch."""
    import torch
    import torch.distributed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own warning about an old driver
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    nccl = torch.distributed.is_nccl_available() if torch.version.cuda else False
    gpus = find_gpus()
    return Graphics(
        gpus=gpus,
        cards=read_cards(nvidia_smi(f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")),
        listed=nvidia_smi("-L") or "",
        topology=(nvidia_smi("topo", "-m") or "") if gpus.count > 1 else "",
        torch=torch.__version__,
        cuda=torch.version.cuda,
        architectures=tuple(torch.cuda.get_arch_list()),
        usable=tuple(torch.cuda.get_device_name(n) for n in range(count)),
        nccl=".".join(map(str, torch.cuda.nccl.version())) if nccl else None,
        environment=dict(os.environ),
    )


def read_cards(table: str | None) -> tuple[Card, ...]:
    """The GPUs in a table with lines such as `NVIDIA H100 80GB HBM3, 81559, 81008, 9.0`."""
    rows = [line.split(", ") for line in (table or "").splitlines()]
    return tuple(
        Card(row[0].strip(), _number(row[1]) or 0, _number(row[2]), row[3].strip())
        for row in rows
        if len(row) == 4
    )


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def check_build(facts: Graphics) -> Check:
    """What torch was built for."""
    fact = f"torch {facts.torch}, a build for " + (f"CUDA {facts.cuda}" if facts.cuda else "CPUs")
    return judge("torch build", fact)


def check_driver(facts: Graphics) -> Check:
    """Whether the driver is new enough for torch's CUDA."""
    if not facts.gpus.count:
        return judge("driver", "none: this machine has no NVIDIA GPU")
    driver = facts.gpus.driver
    fact = driver or "its version is unknown"
    least = least_driver(facts.cuda) if facts.cuda else None
    if least:
        fact += f", and CUDA {facts.cuda} needs {least} or newer"
    old = bool(facts.cuda) and too_old(driver, facts.cuda) and not facts.usable
    advice = "update the driver, or install a torch that was built for an older CUDA"
    return judge("driver", fact, wrong=advice if old else None)


def check_usable(facts: Graphics) -> Check:
    """Whether torch can use the GPUs; if not, commands refuse to start."""
    count, usable = facts.gpus.count, len(facts.usable)
    name = "device"
    if usable:
        return judge(name, f"torch computes on {usable} GPU{'s' if usable > 1 else ''}")
    if not count:
        return judge(name, "torch computes on the CPU: there is no NVIDIA GPU")
    there = f"torch can use none of {count} GPU{'s' if count > 1 else ''}"
    if hidden(facts.environment):
        return judge(name, f"{there}: CUDA_VISIBLE_DEVICES hides them", warning=_CPU_MEANT)
    why, advice = why_unusable(facts.gpus.driver, facts.torch, facts.cuda, facts.environment)
    return judge(name, f"{there}: {why}", wrong=advice)


def check_cards(facts: Graphics) -> Iterator[Check]:
    """What the GPUs are, and whether they are identical."""
    if not facts.cards:
        return
    kinds = {(card.name, card.total) for card in facts.cards}
    shown = [
        f"{sum((c.name, c.total) == kind for c in facts.cards)} x {kind[0]}, {_gib(kind[1])}"
        for kind in sorted(kinds)
    ]
    mixed = "the slowest and smallest sets the pace: name GPUs of one kind in CUDA_VISIBLE_DEVICES"
    yield judge("gpus", " and ".join(shown), warning=mixed if len(kinds) > 1 else None)
    yield from _check_memory(facts)
    yield _check_capability(facts)
    if "MIG" in facts.listed or any("MIG" in name for name in facts.usable):
        yield judge(
            "part of a gpu",
            "MIG: a process gets a slice of a GPU",
            warning="one slice per process, without NVLink and with less memory than its name "
            "says: for several ranks use complete GPUs",
        )


def _check_memory(facts: Graphics) -> Iterator[Check]:
    known = [card for card in facts.cards if card.free is not None and card.total]
    if not known:
        return
    fullest = min(known, key=lambda card: card.free / card.total)
    busy = fullest.free < 0.9 * fullest.total
    yield judge(
        "gpu memory",
        f"{fullest.free / 1024:.0f} of {_gib(fullest.total)} free on the fullest",
        warning="another process uses it (nvidia-smi shows which)" if busy else None,
    )


def _check_capability(facts: Graphics) -> Check:
    """Whether torch has code for the GPUs: that of a build runs on its architectures and on later
    ones with the same major number."""
    found = sorted({card.capability for card in facts.cards}, key=_parts)
    built = sorted({n for a in facts.architectures if (n := _architecture(a))})
    lacking = [
        one
        for one in found
        if built and not any(a[0] == _parts(one)[0] and a <= _parts(one) for a in built)
    ]
    old = [one for one in found if _parts(one) < (8, 0)]
    return judge(
        "gpu capability",
        ", ".join(found),
        wrong=f"this torch has no code for {', '.join(lacking)}: install one that has"
        if lacking
        else None,
        warning="no bfloat16 tensor cores below 8.0: set training.mixed_precision_param to float32"
        if old
        else None,
    )


def _architecture(text: str) -> tuple[int, ...] | None:
    """`sm_90` and `sm_90a` -> (9, 0)."""
    found = re.match(r"sm_(\d+)(\d)", text)
    return (int(found[1]), int(found[2])) if found else None


def _parts(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", capability))


def _gib(mib: int) -> str:
    return f"{mib / 1024:.0f} GiB"


def check_links(facts: Graphics) -> Iterator[Check]:
    """The links between GPUs in a few words, from the matrix of `nvidia-smi topo -m`."""
    if facts.gpus.count < 2:
        return
    words = links(facts.topology)
    if not words:
        yield judge("gpu links", "unknown: nvidia-smi topo -m prints nothing")
        return
    slow = "ranks communicate over PCIe, which is slow: use few ranks, or fsdp.frozen = 'resident'"
    if all(word.startswith("NV") for word in words):
        yield judge("gpu links", f"NVLink between all GPUs ({', '.join(sorted(words))})")
    else:
        some = "NVLink between some GPUs" if any(w.startswith("NV") for w in words) else "no NVLink"
        yield judge("gpu links", f"{some} ({', '.join(sorted(words))})", warning=slow)


def links(topology: str) -> set[str]:
    """The kinds of links between GPUs: NV18, PIX, SYS, ..."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", topology)  # the header is underlined
    rows = [line.split() for line in plain.splitlines()]
    rows = [row for row in rows if len(row) > 1 and re.fullmatch(r"GPU\d+", row[0])]
    rows = [row for row in rows if not re.fullmatch(r"GPU\d+", row[1])]  # without the header
    return {cell for row in rows for cell in row[1 : len(rows) + 1]} - {"X"}


def check_nccl(facts: Graphics) -> Check:
    """Whether torch has NCCL."""
    if facts.nccl is not None:
        return judge("nccl", facts.nccl)
    advice = "ranks on GPUs need it: install the CUDA build of torch from pytorch.org"
    return judge("nccl", "torch has none", wrong=advice if facts.usable else None)


def graphics(facts: Graphics) -> Iterator[Check]:
    """All checks of GPUs."""
    yield check_build(facts)
    yield check_driver(facts)
    yield check_usable(facts)
    yield from check_cards(facts)
    yield from check_links(facts)
    yield check_nccl(facts)

"""What doctor says about GPUs, given what nvidia-smi and torch would have reported."""

import dataclasses

import pytest
import torch

from mixit_titan.doctor import graphics as module
from mixit_titan.doctor.check import Check
from mixit_titan.doctor.graphics import Card, Graphics, graphics, links, read_cards, read_graphics
from mixit_titan.gpus import Gpus

NAME = "NVIDIA H100 80GB HBM3"
TABLE = f"{NAME}, 81559, 81008, 9.0\n" * 8
LISTED = "".join(f"GPU {n}: {NAME} (UUID: GPU-5fa{n})\n" for n in range(8))
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tNV18\tPXB\t0-47\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNV18\tSYS\t0-47\t0\t\tN/A\n"
    "GPU2\tNV18\tNV18\t X \tSYS\t48-95\t1\t\tN/A\n"
    "NIC0\tPXB\tSYS\tSYS\t X \n\n"
    "Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"
)
H100 = Graphics(
    gpus=Gpus(8, "580.65.06"),
    cards=read_cards(TABLE),
    listed=LISTED,
    topology=TOPOLOGY,
    torch="2.13.0+cu130",
    cuda="13.0",
    architectures=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
    usable=(NAME,) * 8,
    nccl="2.28.9",
)
NONE = Graphics(Gpus(0), torch="2.13.0+cpu")


def found(facts: Graphics, **changes: object) -> dict[str, Check]:
    return {check.name: check for check in graphics(dataclasses.replace(facts, **changes))}


def test_a_good_node() -> None:
    checks = found(H100)
    assert {check.state for check in checks.values()} == {"ok"}
    assert checks["gpus"].fact == f"8 x {NAME}, 80 GiB"
    assert checks["gpu memory"].fact == "79 of 80 GiB free on the fullest"
    assert checks["driver"].fact == "580.65.06, and CUDA 13.0 needs 580 or newer"
    assert checks["gpu links"].fact == "NVLink between all GPUs (NV18)"
    assert checks["device"].fact == "torch computes on 8 GPUs"
    assert checks["nccl"].fact == "2.28.9"
    assert not any("5fa" in check.fact for check in checks.values())  # UUIDs name the machine


def test_no_gpu_is_nothing_wrong() -> None:
    checks = found(NONE)
    assert {check.state for check in checks.values()} == {"ok"}
    assert "no NVIDIA GPU" in checks["device"].fact and "gpus" not in checks


def test_an_old_driver() -> None:
    checks = found(H100, gpus=Gpus(8, "550.54.15"), usable=())
    assert checks["driver"].state == checks["device"].state == "wrong"
    assert "550.54.15, and CUDA 13.0 needs 580 or newer" in checks["driver"].fact
    assert "built for an older CUDA" in checks["driver"].advice


def test_an_old_driver_that_does_nevertheless() -> None:
    """NVIDIA's package for forward compatibility."""
    checks = found(H100, gpus=Gpus(8, "550.54.15"))
    assert checks["driver"].state == checks["device"].state == "ok"


def test_a_torch_for_cpus_beside_gpus() -> None:
    checks = found(H100, torch="2.13.0+cpu", cuda=None, usable=(), architectures=(), nccl=None)
    assert checks["device"].state == "wrong" and "CUDA build" in checks["device"].advice
    assert checks["driver"].state == "ok"  # it is not its fault


def test_hidden_gpus_are_a_warning() -> None:
    checks = found(H100, usable=(), environment={"CUDA_VISIBLE_DEVICES": ""})
    assert checks["device"].state == "warning" and "hides them" in checks["device"].fact


def test_mixed_gpus() -> None:
    other = Card("NVIDIA A100-SXM4-40GB", 40960, 40000, "8.0")
    checks = found(H100, cards=(*H100.cards[:7], other))
    assert checks["gpus"].state == "warning" and "of one kind" in checks["gpus"].advice
    assert checks["gpus"].fact == f"1 x NVIDIA A100-SXM4-40GB, 40 GiB and 7 x {NAME}, 80 GiB"


@pytest.mark.parametrize(
    "changes",
    [
        {"listed": LISTED + "  MIG 3g.40gb     Device  0: (UUID: MIG-1c)\n"},
        {"usable": (f"{NAME} MIG 3g.40gb",)},
    ],
)
def test_a_slice_of_a_gpu(changes: dict[str, object]) -> None:
    assert "part of a gpu" not in found(H100)
    assert found(H100, **changes)["part of a gpu"].state == "warning"


def test_what_nvidia_smi_does_not_say_of_a_sliced_gpu() -> None:
    cards = read_cards(f"{NAME}, 81559, [N/A], 9.0\n")
    assert cards == (Card(NAME, 81559, None, "9.0"),)
    assert "gpu memory" not in found(H100, cards=cards)


def test_a_busy_gpu() -> None:
    cards = (*H100.cards[:7], Card(NAME, 81559, 20000, "9.0"))
    assert found(H100, cards=cards)["gpu memory"].state == "warning"


@pytest.mark.parametrize(
    ("capability", "state"), [("6.1", "wrong"), ("7.5", "warning"), ("8.9", "ok"), ("9.0", "ok")]
)
def test_gpus_that_the_build_has_no_code_for(capability: str, state: str) -> None:
    cards = (Card("a GPU", 8192, 8192, capability),)
    assert found(H100, cards=cards)["gpu capability"].state == state


def test_links() -> None:
    assert links(TOPOLOGY) == {"NV18"}
    pcie = TOPOLOGY.replace("NV18", "PHB")
    checks = found(H100, topology=pcie)
    assert checks["gpu links"].state == "warning" and "no NVLink (PHB)" in checks["gpu links"].fact
    some = TOPOLOGY.replace("NV18", "SYS", 1)
    assert "between some GPUs (NV18, SYS)" in found(H100, topology=some)["gpu links"].fact
    assert found(H100, topology="")["gpu links"].state == "ok"
    assert "gpu links" not in found(H100, gpus=Gpus(1, "580.1"))


def test_gpus_without_nccl() -> None:
    assert found(H100, nccl=None)["nccl"].state == "wrong"


def test_the_facts_are_read_from_nvidia_smi_and_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"--query-gpu": TABLE, "-L": LISTED, "topo": TOPOLOGY}
    monkeypatch.setattr(module, "find_gpus", lambda: Gpus(8, "580.65.06"))
    monkeypatch.setattr(module, "nvidia_smi", lambda first, *_: said[first.partition("=")[0]])
    monkeypatch.setattr(torch, "__version__", "2.13.0+cu130")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for name, value in {
        "is_available": True,
        "device_count": 8,
        "get_device_name": NAME,
        "get_arch_list": list(H100.architectures),
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert dataclasses.replace(read_graphics(), environment={}) == H100

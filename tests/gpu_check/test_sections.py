"""Every section on a simulated node of eight GPUs (conftest.py)."""

import json
import re
from pathlib import Path

import pytest

from mixit_titan.gpu_check.check import Check
from mixit_titan.gpu_check.command import SECTIONS, Arguments, run_checks
from mixit_titan.gpu_check.process import Case, Ended
from mixit_titan.gpu_check.report import JSON, MARKDOWN
from mixit_titan.gpu_check.scale import on_gpus, rehearsal
from mixit_titan.gpu_check.section_tables import section_table
from mixit_titan.gpu_check.session import Session
from mixit_titan.gpu_check.throughput import throughput

from .conftest import Node, usual_answer


def checks(out: Path, *only: str) -> dict[tuple[str, str], Check]:
    report = run_checks(Arguments(out=out, only=only))
    return {(check.section, check.name): check for check in report.checks}


def test_all_sections_pass_and_their_tables_can_be_read(node: Node, tmp_path: Path) -> None:
    found = checks(tmp_path)
    assert {check.state for check in found.values()} == {"pass"}
    assert {section for section, _ in found} == set(SECTIONS)
    # Forms x lengths x pairs of heads and widths of the flavors; rows x mixers.
    assert sum(section == "parity" for section, _ in found) == 4 * 4 * 7
    assert sum(section == "times" for section, _ in found) == 5 * 6
    page = (tmp_path / MARKDOWN).read_text()
    assert page.startswith("# GPU check: 8 x NVIDIA H100 80GB HBM3\n")
    assert f"**{len(found)} passed, 0 failed, 0 skipped**" in page
    assert "| mixit | 330,000 | 1.100 | 40.0% | 2,640,000 | 1.100 | 40.0% |" in page
    assert "| 160m (12 x 64) | 0.0030 | 0.0030 | 0.0030 | 0.0030 |" in page
    assert "| warning | disk | runs: 80 MiB/s | another disk |\n| ok | torch |" in page
    # FLOPs of mixing: 2 m n per token, forward and backward, at 989 TFLOPS.
    ideal = 1e3 * 2 * 2048 * 768 * (2048 * 32) / 989e12
    assert f"| 160m, 2,048, batch 32 | {ideal:.2g} |" in page
    whole = json.loads((tmp_path / JSON).read_text())
    assert whole["summary"] == {"passed": len(found), "failed": 0, "skipped": 0}
    assert whole["rehearsal"] is False and whole["machine"]["gpus"] == 8


def test_what_passed_is_not_run_again_and_the_rest_is(node: Node, tmp_path: Path) -> None:
    node.dies = {"all"}
    first = checks(tmp_path)
    assert first["training", "8 GPUs"].state == "fail"
    node.dies, node.started = set(), []
    again = checks(tmp_path)
    assert {check.state for check in again.values()} == {"pass"}
    assert node.started == ["all", "resumed", "stopped", "stopped"]  # the others were trained
    node.started = []
    assert checks(tmp_path) == again and node.started == []
    node.machine["changes"] = "another"  # code that is not committed
    assert checks(tmp_path).keys() == again.keys() and "one" in node.started


def test_only_some_sections(node: Node, tmp_path: Path) -> None:
    checks(tmp_path, "doctor")
    found = checks(tmp_path, "times")
    assert {section for section, _ in found} == {"doctor", "times"}
    assert "Not run: tests, parity, training" in (tmp_path / MARKDOWN).read_text()


def test_a_kernel_that_is_wrong_and_one_that_crashes(node: Node, tmp_path: Path) -> None:
    def answer(case: Case) -> Case | Ended:
        if (case.get("noise"), case["length"]) == ("sign", 2048):
            return {"documents, backward": {"largest": 0.3, "norm": 0.1}}
        if case.get("form") == "stored" and case["length"] == 8192:
            return Ended(1, "torch.AcceleratorError: CUDA error", 3.0)
        if case.get("mixer") == "flex":
            return Ended(None, "autotuning", 1200.0)
        if case.get("form") == "stored" and case["length"] == 256:
            return {"needed_bytes": 2**35}
        if case.get("length") == 1000:
            return {"whole rows, forward": {"largest": float("nan"), "norm": 0.001}}
        return usual_answer(case)

    node.answer = answer
    found = checks(tmp_path, "parity", "times")
    wrong = found["parity", "160m (12 x 64), length 2,048, drawn signs"]
    assert wrong.state == "fail" and "too large in documents, backward" in wrong.said
    crashed = found["parity", "160m (12 x 64), length 8,192, stored"]
    assert crashed.said == "exit code 1: torch.AcceleratorError: CUDA error"
    assert found["parity", "160m (12 x 64), length 1,000, stored"].state == "fail"  # NaN
    assert found["parity", "160m (12 x 64), length 256, stored"].said == (
        "needs 32 GiB of GPU memory"
    )
    page = (tmp_path / MARKDOWN).read_text()
    assert " more | skipped | needs 32 GiB of GPU memory |" in page
    row = (
        "| 160m (12 x 64) | skipped (stored) | **FAIL** (stored, sharded, drawn, drawn signs) "
        "| **FAIL** (drawn signs)"
    )
    assert f"{row} | **FAIL** (stored) |" in page
    assert "- times: 8b, 8,192, batch 1: flex, documents: not finished after 1,200 s" in page
    assert found["times", "8b, 8,192, batch 1: stored"].state == "pass"


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("one_no_graphs", "1 GPU, no CUDA graphs"),
        ("one_drawn", "1 GPU, drawn matrices"),
        ("all", "8 GPUs"),
        ("all_sharded", "8 GPUs, sharded matrices"),
        ("resumed", "resume from step 20"),
    ],
)
def test_a_curve_that_is_another(node: Node, tmp_path: Path, name: str, check: str) -> None:
    node.losses[name] = lambda step: 11.8 - step / 10
    found = checks(tmp_path, "training")
    assert found["training", check].state == "fail"
    assert "not within 0.05" in found["training", check].said
    assert found["training", "SIGTERM"].state == "pass"


def test_a_loss_that_does_not_fall(node: Node, tmp_path: Path) -> None:
    node.losses["one"] = lambda step: 11.8
    assert "fell by 0.000 in 30 steps" in checks(tmp_path, "training")["training", "1 GPU"].said


def test_runs_without_one_to_compare_with(node: Node, tmp_path: Path) -> None:
    node.dies = {"one"}
    found = checks(tmp_path, "training", "memory")
    assert found["training", "1 GPU"].said == (
        "exit code 1: torch.OutOfMemoryError: CUDA out of memory"
    )
    assert found["training", "8 GPUs"].state == "skipped"
    assert found["training", "resume from step 20"].state == "pass"
    assert found["memory", "1 GPU"].said == "the run was not trained"
    assert found["memory", "8 GPUs"].state == "pass"


def test_one_gpu(node: Node, tmp_path: Path) -> None:
    node.machine["gpus"] = 1
    found = checks(tmp_path, "training", "memory", "throughput")
    assert found["training", "all GPUs"].said == "there is one GPU"
    assert found["training", "resume from step 20"].state == "pass"
    assert [name for section, name in found if section == "throughput"] == ["1 GPU"]


def test_memory_that_was_not_foreseen(node: Node, tmp_path: Path) -> None:
    checks(tmp_path, "training")
    metrics = tmp_path / "training" / "all" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("24.0", "60.0"))
    found = checks(tmp_path, "memory")
    assert found["memory", "8 GPUs"].state == "fail"
    assert found["memory", "8 GPUs"].said.startswith("60.0 GiB, estimated 24")


def test_tests_that_fail_are_skipped_or_crash(node: Node, tmp_path: Path) -> None:
    def junit(name: str) -> str | None:
        if "[64]" in name:
            return "<testcase {}><failure message='assert 3 &lt; 2&#10;more'/></testcase>"
        return None if "bench" in name else "<testcase {}><skipped message='two GPUs'/></testcase>"

    node.junit = junit
    found = checks(tmp_path, "tests")
    kernels = found["tests", "test_gpu.py::test_kernels"]
    assert kernels.state == "fail" and kernels.said == "1 of 2: test_kernels[64]: assert 3 < 2"
    assert found["tests", "test_bench.py::test_bench"].said.startswith("killed by SIGSEGV: Fatal")
    node.junit = lambda name: "<testcase {}><skipped message='two GPUs'/></testcase>"
    found = checks(tmp_path, "tests")
    assert {(check.state, check.said) for check in found.values()} == {("skipped", "two GPUs")}


def test_what_was_not_timed_says_why(node: Node, tmp_path: Path) -> None:
    node.answer = lambda case: {"milliseconds": None}
    checks(tmp_path, "times")
    page = (tmp_path / MARKDOWN).read_text()
    assert "stored and 29 more | skipped | needs a GPU to be timed: it ran once |" in page


def test_the_speed_of_a_toy_is_not_modeled(node: Node, tmp_path: Path) -> None:
    session = Session(tmp_path, rehearsal(), [])
    (one, _) = throughput(session)
    assert {row["modeled_tokens_per_s"] for row in one.figures["rows"]} == {None}
    assert "| 1 CPU rank | mixit | 330,000 | - | 16 |" in section_table(
        "throughput", session.scale, node.machine, [one]
    )
    for scale, modeled in ((rehearsal(), False), (on_gpus(8, "NVIDIA H100"), True)):
        table = section_table("times", scale, node.machine, [])
        assert ("modeled" in table) == (re.search(r"\([\d.]+\)", table) is not None) == modeled


@pytest.mark.parametrize("section", ["doctor", "parity"])
def test_a_mistake_of_a_section_is_not_the_end(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    def mistake(session: Session) -> None:
        raise TypeError("an int is no string")

    monkeypatch.setitem(SECTIONS, section, mistake)
    found = checks(tmp_path, section, "times")
    assert found[section, "the section"].said == "TypeError: an int is no string"
    assert found["times", "8b, 8,192, batch 1: stored"].state == "pass"
    assert "| the section | **FAIL** | TypeError" in (tmp_path / MARKDOWN).read_text()

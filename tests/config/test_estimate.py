import re
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.config.estimate import Estimate, estimate, memory_left
from mixit_titan.config.plan import plan_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.config.shipped_estimates import by_size, shipped_estimate
from mixit_titan.errors import ConfigError
from mixit_titan.model.hardware import GPUS
from mixit_titan.model.variants import VARIANTS

ROOT = Path(__file__).parents[2]


def of(name: str, *overrides: str, ranks: int = 8, gpu: str = "H100") -> Estimate:
    plan = plan_run(str(shipped_configs()[name]), [*overrides], world_size=ranks, on_gpus=True)
    return estimate(plan, ranks=ranks, gpu=gpu)


def named_ranks(name: str) -> list[int]:
    """`8 to 64 H100s` or `1 to 8 GPUs` at the top of a file; those for a CPU name none."""
    first = shipped_configs()[name].read_text().splitlines()[0]
    if "CPU" in first:
        return [1, 8]
    few, many = re.search(r"(\d+)(?: to (\d+))? (?:H100s|GPUs)", first).groups()
    return [int(few), int(many or few)]


@pytest.mark.parametrize("name", by_size())
def test_every_shipped_config_fits_on_the_gpus_that_it_names(name: str) -> None:
    for ranks in named_ranks(name):
        for variant in VARIANTS:
            found = shipped_estimate(name, variant, ranks=ranks, gpu="H100")
            assert found.fits, (variant, ranks, found.advice())
            assert found.tokens_per_s > 0 and found.days > 0
            assert found.is_toy == name.startswith(("debug", "wikitext2"))


CHOICES = ("local_batch_size", "num_chunks", "mode", "async_mode")
"""Keys that are set for GPUs."""


@pytest.mark.parametrize("name", by_size())
def test_every_choice_for_gpus_has_its_reason(name: str) -> None:
    for line in shipped_configs()[name].read_text().splitlines():
        if line.split(" = ")[0] in CHOICES:
            assert re.search(r"   # \w", line), line
        if said := re.search(r"(selective|full) would take (\d+)% longer", line):
            standard = shipped_estimate(name, "standard", ranks=named_ranks(name)[1], gpu="H100")
            speeds = {other.recomputation: other.tokens_per_s for other in standard.alternatives}
            longer = speeds[standard.recomputation] / speeds[said[1]] - 1
            assert longer == pytest.approx(int(said[2]) / 100, abs=0.006)


def test_the_reasons_of_local_batches() -> None:
    def speed(name: str, rows: int, ranks: int) -> float:
        changed = ("--training.local_batch_size", str(rows))
        return shipped_estimate(name, "mixit", *changed, ranks=ranks, gpu="H100").tokens_per_s

    at_8b = {rows: speed("8b_fineweb_edu", rows, 64) for rows in (1, 4, 8)}
    assert at_8b[1] / at_8b[4] == pytest.approx(1 - 0.39, abs=0.005)
    assert at_8b[8] / at_8b[4] == pytest.approx(1, abs=0.001)
    larger = speed("410m_fineweb_edu", 32, 8) / speed("410m_fineweb_edu", 16, 8)
    assert larger == pytest.approx(1.002, abs=0.0005)


def test_the_largest_batch_that_fits_does_and_the_next_does_not() -> None:
    found = of("1b_fineweb_edu", "--model.variant", "standard")
    assert [other.recomputation for other in found.alternatives] == ["none", "selective", "full"]
    for other in found.alternatives:
        mode = ["--activation_checkpoint.mode", other.recomputation]
        rows = other.largest_batch
        with_it = of(
            "1b_fineweb_edu",
            *("--model.variant", "standard", "--training.local_batch_size", str(rows), *mode),
        )
        assert with_it.fits and with_it.recomputation == other.recomputation
        if rows < 64:
            size = str(2 * rows)  # the share of a rank is 64 rows
            larger = of(
                "1b_fineweb_edu",
                *("--model.variant", "standard", "--training.local_batch_size", size, *mode),
            )
            assert not larger.fits


def test_what_does_not_fit_says_what_would() -> None:
    found = of("1b_fineweb_edu", "--training.local_batch_size", "64")
    assert not found.fits
    said = found.advice()
    assert "--activation_checkpoint.mode full" in said and "--training.local_batch_size 16" in said
    assert f"{found.memory.total / 2**30:.1f} GiB" in said
    for override in found.what_would_fit():
        mended = ["--training.local_batch_size", "64", *override.split()]
        assert of("1b_fineweb_edu", *mended).fits
    assert of("1b_fineweb_edu", "--training.local_batch_size", "64", gpu="B200").fits


def test_steps_and_days_follow_from_the_seconds() -> None:
    found = of("160m_fineweb_edu")
    assert found.tokens_per_s == pytest.approx(256 * 2048 / found.seconds_per_step)
    assert found.days == pytest.approx(8000 * found.seconds_per_step / 86400)
    assert found.communication_bytes == found.received.weights + found.received.gradients
    said = found.as_json()
    assert said["modeled"] and said["memory_bytes"]["total"] == found.memory.total
    assert said["alternatives"][0]["memory"]["total"] == found.memory.total


def test_accumulation_gathers_more_often_and_keeps_no_more() -> None:
    one, four = (
        of("160m_fineweb_edu", "--training.local_batch_size", rows) for rows in ("32", "8")
    )
    assert four.communication_bytes == 4 * one.communication_bytes
    assert four.memory.activations * 4 == one.memory.activations
    assert four.tokens_per_step == one.tokens_per_step


def test_room_is_what_the_rest_of_the_run_leaves() -> None:
    path = str(shipped_configs()["1b_fineweb_edu"])
    plan = plan_run(path, ["--model.mixing.storage", "stored"], world_size=8, on_gpus=True)
    found, model = estimate(plan, ranks=8), plan.model
    available = GPUS["H100"].available
    room = memory_left(plan.sections, model.shape, model.stack, ranks=8, available=available)
    assert found.memory.mixing == 16 * 32 * (16 * 17 // 2) * 128**2 * 2  # the tiles of a triangle
    assert room == GPUS["H100"].available - found.memory.total + found.memory.mixing


def test_tensor_and_pipeline_parallelism_divide_the_model() -> None:
    whole = of("8b_fineweb_edu", "--model.variant", "standard", ranks=64)
    split = ["--parallelism.data_parallel_replicate_degree", "4"]
    split += ["--model.variant", "standard"]
    tensor = of("8b_fineweb_edu", *split, "--parallelism.tensor_parallel_degree", "2", ranks=64)
    assert tensor.memory.weights == pytest.approx(whole.memory.weights / 2, rel=1e-6)
    assert tensor.received.tensor > 0
    stages = ["--parallelism.pipeline_parallel_degree", "2", "--loss.num_chunks", "1"]
    staged = of("8b_fineweb_edu", *split, *stages, ranks=64)
    assert staged.memory.activations == whole.memory.activations // 2
    assert any("pipeline" in line for line in staged.assumptions)


def test_one_node_is_a_replica_of_8b() -> None:
    """The override that docs/hardware.md names."""
    with pytest.raises(ConfigError, match="64"):
        of("8b_fineweb_edu", ranks=8)
    alone = of("8b_fineweb_edu", "--parallelism.data_parallel_replicate_degree", "1", ranks=8)
    assert alone.fits and alone.time == "26.6 days"
    assert of("8b_fineweb_edu", ranks=64).time == "3.3 days"


def test_selective_recomputation_is_free_with_biases() -> None:
    none, selective, _ = of("paper_fineweb_edu").alternatives
    assert none.tokens_per_s == selective.tokens_per_s
    assert none.memory.activations > selective.memory.activations
    assert any("every product with a bias" in line for line in of("paper_fineweb_edu").assumptions)


def test_an_eager_run_keeps_more() -> None:
    eager = of("160m_fineweb_edu", "--compile.enable", "false")
    assert eager.memory.activations > of("160m_fineweb_edu").memory.activations
    assert of("debug_mixit").fits  # a file that is not for GPUs alone


def test_an_unknown_gpu() -> None:
    with pytest.raises(ConfigError, match="did you mean 'H200'"):
        of("160m_fineweb_edu", gpu="H20")


def test_the_page_shows_what_the_commands_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "hardware.md").read_text()
    commands = re.findall(r"^    mixit-titan (params .*)$", page, re.M)
    assert len(commands) == 2
    shown = re.sub(r"^    ", "", page, flags=re.M)  # also in a block of code
    for command in commands:
        monkeypatch.setattr("sys.argv", ["mixit-titan", *command.split()])
        main()
        assert capsys.readouterr().out.strip() in shown, f"paste what it prints: {command}"

"""The report of a sweep against figures worked out by hand."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from mixit_titan.tasks.sweep_report import write_report


def row(variant: str, pairs: str, seed: int, accuracy: float) -> dict:
    return {
        "folder": f"{variant}{pairs}{seed}",
        "variant": variant,
        "seed": seed,
        "axes": {"pairs": pairs},
        "accuracy": accuracy,
        "exact": accuracy,
        "loss": 1.0,
        "trainable_params": 1000,
        "steps": 5,
        "seconds": 1.0,
    }


def test_mean_spread_and_best(tmp_path: Path) -> None:
    rows = [row("mixit", "4", seed, a) for seed, a in enumerate((0.2, 0.4, 0.6))]
    rows += [row("mixit", "8", seed, a) for seed, a in enumerate((0.1, 0.1, 0.1))]
    rows += [row("standard", "4", 0, 1.0)]
    write_report("retrieval", ["pairs"], rows, tmp_path, Console(quiet=True))
    found = json.loads((tmp_path / "sweep.json").read_text())
    four, eight, standard = found["groups"]
    assert four["accuracy"]["mean"] == pytest.approx(0.4)
    assert four["accuracy"]["std"] == pytest.approx(0.2)
    assert (four["accuracy"]["min"], four["accuracy"]["max"], four["seeds"]) == (0.2, 0.6, 3)
    assert eight["accuracy"]["std"] < 1e-12 and standard["seeds"] == 1
    assert found["best"] == {"mixit": {"pairs": "4"}, "standard": {"pairs": "4"}}
    table = (tmp_path / "sweep.md").read_text().splitlines()
    assert table[2].startswith("| mixit | 4 | 40.00 ± 20.00% * |")
    assert table[3].startswith("| mixit | 8 | 10.00 ± 0.00% |")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_figures_of_a_tasks_own_have_columns(tmp_path: Path) -> None:
    rows = [row("mixit", "4", seed, 0.5) for seed in range(2)]
    for seed in range(2):
        rows[seed] |= {"bits_per_parameter": 1.0 + seed, "carry_errors": 3.0}
    write_report("sums", ["pairs"], rows, tmp_path, Console(quiet=True))
    header, _, body = (tmp_path / "sweep.md").read_text().splitlines()[:3]
    assert header.endswith("| seconds | bits/parameter | carry errors |")
    assert body.endswith("| 1.500 ± 0.707 | 3.000 ± 0.000 |")
    (group,) = json.loads((tmp_path / "sweep.json").read_text())["groups"]
    assert group["bits_per_parameter"]["max"] == 2.0


def test_one_seed_has_no_deviation(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = [row("mixit", "4", 0, 0.5) | {"bits_per_parameter": 1.25}]
    write_report("sums", ["pairs"], rows, tmp_path, Console(width=200))
    assert "±" not in (tmp_path / "sweep.md").read_text()
    said = capsys.readouterr().out
    assert f"  mixit-titan analyze attention {tmp_path / rows[0]['folder']}\n" in said
    assert "standard deviation" not in capsys.readouterr().out


def test_the_folder_of_each_run_is_named_beside_its_settings(tmp_path: Path) -> None:
    rows = [row("mixit", "4", seed, 0.5) for seed in range(2)]
    write_report("sums", ["pairs"], rows, tmp_path, Console(quiet=True))
    runs = (tmp_path / "sweep.md").read_text().split("\n\n")[1].splitlines()
    assert runs[0] == "| variant | pairs | seed | accuracy | folder |"
    assert runs[2:] == [
        "| mixit | 4 | 0 | 50.00% | mixit40 |",
        "| mixit | 4 | 1 | 50.00% | mixit41 |",
    ]

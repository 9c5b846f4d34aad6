"""The coordinate check and the sweep of rates, against what initialization and arithmetic say."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from mixit_titan.analysis import coordinates_table
from mixit_titan.analysis.command import AnalyzeArguments, run_analyze
from mixit_titan.analysis.coordinate_models import (
    BASE,
    LENGTH,
    ROWS,
    Family,
    batches,
    build,
    optimizer,
)
from mixit_titan.analysis.coordinates import coordinates
from mixit_titan.analysis.rate_transfer import best_rate
from mixit_titan.data.sources import STDLIB, find_corpus
from mixit_titan.errors import ConfigError


def test_logits_at_initialization_follow_the_head() -> None:
    """A normed state has coordinates of size 1. A head of N(0, 1/width) keeps that at any width;
    that of mup is smaller by sqrt(64 / width): a slope of -1/2."""
    families = (Family("standard"), Family("standard", mup=True))
    plain, mup = coordinates(widths=(32, 128), depths=(2,), steps=1, families=families)["families"]
    assert plain["slopes"]["width"]["logits"] == pytest.approx(0, abs=0.1)
    assert mup["slopes"]["width"]["logits"] == pytest.approx(-0.5, abs=0.1)
    for row in plain["rows"]:
        assert row["logits"] == pytest.approx(1, rel=0.15)
    assert plain["slopes"]["depth"]["logits"] is None  # of one depth


def test_plain_residuals_grow_with_depth_and_weighted_ones_do_not() -> None:
    """x + f(x) adds up; 0.5 x + sqrt(0.75) f(x), the official recipe's, does not."""
    families = (Family("mixit"), Family("mixit", "official"))
    paper, official = coordinates(widths=(64,), depths=(1, 8), steps=1, families=families)[
        "families"
    ]
    assert paper["slopes"]["depth"]["state"] > 0.3
    assert abs(official["slopes"]["depth"]["state"]) < abs(paper["slopes"]["depth"]["state"])


def test_mup_divides_the_rates_of_what_has_width_inputs() -> None:
    width = 4 * BASE
    for mup, scaled_rate in ((False, 1e-2), (True, 1e-2 / 4)):
        family = Family("standard", mup=mup)
        model = build(family, width, 1)
        plain, scaled = optimizer(model, family, width, 1e-2).param_groups
        assert (plain["lr"], scaled["lr"]) == pytest.approx((1e-2, scaled_rate))
        names = {id(param): name for name, param in model.named_parameters()}
        of_plain = {names[id(param)] for param in plain["params"]}
        assert all("norm" in name or "embeddings" in name for name in of_plain)
        assert len(plain["params"]) + len(scaled["params"]) == len(names)


def test_frozen_weights_are_in_no_group() -> None:
    family = Family("frozen_mlp")
    model = build(family, 32, 1)
    groups = optimizer(model, family, 32, 1e-2).param_groups
    trained = {id(param) for group in groups for param in group["params"]}
    frozen = [n for n, param in model.named_parameters() if id(param) not in trained]
    assert frozen and all("feed_forward" in name for name in frozen)


def test_no_byte_is_trained_on_twice() -> None:
    steps = 3
    found = torch.stack(list(batches(steps)))  # (steps, rows, length + 1)
    assert found.shape == (steps, ROWS, LENGTH + 1)
    documents, text = find_corpus(STDLIB).documents(), b""
    while len(text) < found.numel():
        text += next(documents).text
    in_order = np.frombuffer(text[: found.numel()], dtype=np.uint8)
    assert found.transpose(0, 1).flatten().tolist() == in_order.tolist()


def test_the_best_rate_is_the_vertex_of_a_parabola() -> None:
    rates = [1e-3, 2e-3, 4e-3, 8e-3]
    losses = [2 + math.log(rate / 3e-3) ** 2 for rate in rates]
    found = best_rate(rates, losses)
    assert (found["rate"], found["loss"]) == pytest.approx((3e-3, 2.0))
    assert not found["at_edge"]
    assert best_rate(rates, [1.0, 2.0, 3.0, 4.0]) == {"rate": 1e-3, "loss": 1.0, "at_edge": True}
    assert best_rate(rates, [3.0, 2.0, math.nan, math.nan])["at_edge"]


def test_the_command_writes_slopes_and_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coordinates_table, "STEPS", 1)
    run_analyze(
        AnalyzeArguments(
            "coordinates",
            out=tmp_path,
            widths=(16, 32),
            depths=(1, 2),
            rates=(1e-3, 4e-3, 16e-3),
            steps=2,
        )
    )
    found = json.loads((tmp_path / "coordinates.json").read_text())
    assert len(found["sizes"]["families"]) == 8 and len(found["rates"]["families"]) == 6
    assert [row["width"] for row in found["rates"]["families"][0]["rows"]] == [16, 32]
    assert (tmp_path / "coordinates.png").stat().st_size > 10_000
    assert "Best learning rate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"widths": (20, 32)}, "--widths has 20"),
        ({"widths": (32,)}, "at least two --widths"),
        ({"rates": (1e-3, 2e-3)}, "three --rates"),
        ({"ratio": 0.5}, "--ratio is for sde"),
    ],
)
def test_wrong_options_are_one_sentence(tmp_path: Path, options: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run_analyze(AnalyzeArguments("coordinates", out=tmp_path, **options))

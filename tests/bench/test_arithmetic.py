import pytest

from mixit_titan.bench.arithmetic import LENGTHS, limits, limits_markdown
from mixit_titan.errors import ConfigError


@pytest.fixture(scope="module")
def h100() -> dict:
    return limits("H100", ["160m", "8b"])


def test_every_flavor_at_every_length(h100: dict) -> None:
    rows = {(row["flavor"], row["seq_len"]): row for row in h100["rows"]}
    assert len(rows) == 2 * len(LENGTHS) and min(LENGTHS) == 256 and max(LENGTHS) == 32768
    # 8b at 4096 by hand: 32 layers of width 4096, 8 of 32 heads for keys and values, MLP 14336.
    n, m = 4096, 4096
    q = o = n * n
    kv, mlp, head = n * n // 4, 3 * n * 14336, n * 128256
    standard = 6 * (32 * (q + 2 * kv + o + mlp) + head) + 32 * 6 * m * n
    row = rows["8b", 4096]
    assert row["standard_tokens_per_s_at_peak"] == pytest.approx(989e12 / standard)
    assert row["limit"]["frozen_qk"] == pytest.approx(standard / (standard - 32 * 2 * (q + kv)))
    assert row["limit"]["frozen_mlp"] == pytest.approx(standard / (standard - 32 * 2 * mlp))
    # The mixing mixer has as many values as heads, and no queries and keys.
    mixit = 6 * (32 * (2 * n * n + mlp) + head) + 32 * 2 * m * n
    assert row["limit"]["mixit"] == pytest.approx(standard / mixit)
    assert (
        row["mixing_matrices_bytes"] == 2 * 32 * 32 * (32 * 33 // 2) * 128**2
    )  # tiles of a triangle


def test_the_table_says_that_it_is_computed(h100: dict) -> None:
    text = limits_markdown(h100)
    assert text.startswith("FLOP ratios to standard, computed and not measured, for one H100 at")
    assert text.count("\n| 8b |") == len(LENGTHS)
    assert h100["computed"] and not h100["measured"]


def test_a_gpu_that_nobody_knows_has_no_limits() -> None:
    with pytest.raises(ConfigError, match="'X9000'"):
        limits("X9000")

"""Batches of three sources. Each has tokens that the others do not have, so that a row says which
source it is of."""

import logging
from pathlib import Path

import numpy as np
import pytest

from mixit_titan.data.loader import RowLoader
from mixit_titan.data.mixture import Source, Weights
from mixit_titan.errors import ConfigError
from tests.data.test_loader import PACKINGS, L, Row, expected_rows, global_batches, loader
from tests.shards import write_shards

SHARES = (0.6, 0.3, 0.1)
DOCUMENTS = (40, 60, 7)
ROWS = 24  # of a global batch


def documents(source: int, count: int) -> list[list[int]]:
    draw = np.random.default_rng(source)
    return [
        draw.integers(80 * source, 80 * (source + 1), draw.integers(2, 50)).tolist()
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("mixed")
    return [
        str(write_shards(root / f"{n}", train=documents(n, count), validation=documents(n, 5)))
        for n, count in enumerate(DOCUMENTS)
    ]


def mixed(folders: list[str], *spells: Weights, **settings: object) -> dict[str, object]:
    sources = [Source(folder, f"source_{n}") for n, folder in enumerate(folders)]
    weights = list(spells) or [Weights(0, SHARES)]
    return {"folder": folders[0], "sources": sources, "weights": weights, **settings}


def source_of(row: Row) -> int:
    return min(row[0]) // 80  # not by an end-of-text id, which is above all


@pytest.mark.parametrize("packing", PACKINGS)
def test_three_sources_resume_on_other_ranks_with_the_same_batches(
    folders: list[str], packing: str
) -> None:
    settings = mixed(folders, packing=packing)
    expected, _ = global_batches(ranks=1, batch=24, count=12, **settings)
    before, state = global_batches(ranks=2, batch=4, count=5, **settings)
    after, state = global_batches(ranks=3, batch=8, count=3, state=state, **settings)
    last, state = global_batches(ranks=1, batch=12, count=4, state=state, workers=1, **settings)
    assert before + after + last == expected
    assert state["consumed"] == 12 * ROWS


@pytest.mark.parametrize("packing", PACKINGS)
def test_shares_are_within_one_row_after_each_step_and_rows_those_of_the_files(
    folders: list[str], packing: str
) -> None:
    batches, _ = global_batches(ranks=2, batch=3, count=15, **mixed(folders, packing=packing))
    rows = [row for batch in batches for row in batch]
    which = np.array([[source_of(row) for row in batch] for batch in batches])
    given = np.cumsum((which[..., None] == np.arange(3)).sum(axis=1), axis=0)
    exact = ROWS * np.arange(1, 16)[:, None] * np.array(SHARES)
    assert np.abs(given - exact).max() < 1
    for source, count in enumerate(DOCUMENTS):
        whole = expected_rows(documents(source, count), packing)
        own = [row for row in rows if source_of(row) == source]
        times = [own.count(row) for row in whole]
        passes = len(own) // len(whole)
        assert sum(times) == len(own) and set(times) <= {passes, passes + 1}


def test_a_folder_alone_and_a_mixture_of_one_are_the_same(folders: list[str]) -> None:
    alone, state = global_batches(folders[0], 2, 4, 9)
    one, mixed_state = global_batches(
        ranks=2, batch=4, count=9, **mixed(folders[:1], Weights(0, (3,)))
    )
    assert one == alone
    assert set(state) == {
        *("consumed", "data.packing", "data.seed", "training.seq_len"),
        *("rows of the data", "tokens of the data", "bytes of the data"),
    }
    assert set(mixed_state) == {*list(state)[:4], "sources"}


def test_repeats_are_counted_and_said_once_each(
    folders: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The 7 rows of the last source are a tenth of all: they begin again after 70, 140, ..."""
    caplog.set_level(logging.INFO)
    one = loader(**mixed(folders, packing="documents"), batch=5)
    batches = iter(one)
    for _ in range(32):
        next(batches)
    said = [r.message for r in caplog.records if "source_2" in r.message]
    assert said == [f"All 7 rows of source_2 have been used: pass {n} begins" for n in (2, 3)]
    assert one.given() == {"source_0": (96, 2), "source_1": (48, 0), "source_2": (16, 2)}
    resumed = loader(**mixed(folders, packing="documents"), batch=5)
    resumed.load_state_dict(one.state_dict())
    caplog.clear()
    next(iter(resumed))
    assert not [r for r in caplog.records if "have been used" in r.message]


def test_a_weight_changes_at_a_named_place_for_a_run_that_resumes_before_it(
    folders: list[str],
) -> None:
    changed = mixed(folders, Weights(0, SHARES), Weights(6 * ROWS, (0.2, 0.3, 0.5)))
    before, state = global_batches(ranks=1, batch=12, count=4, **mixed(folders))
    after, last = global_batches(ranks=3, batch=4, count=8, state=state, **changed)
    expected, _ = global_batches(ranks=2, batch=6, count=12, **changed)
    assert before + after == expected
    given = np.bincount([source_of(row) for batch in expected[6:] for row in batch])
    assert np.abs(given - 6 * ROWS * np.array([0.2, 0.3, 0.5])).max() < 1
    with pytest.raises(ConfigError, match=r"by the weights of data\.sources it would be"):
        loader(**mixed(folders)).load_state_dict(last)


def test_a_folder_alone_becomes_a_mixture_at_a_named_place(folders: list[str]) -> None:
    spells = (Weights(0, (1, 0)), Weights(3 * ROWS, (0.5, 0.5)))
    before, state = global_batches(folders[0], 1, 24, 3)
    later = loader(**mixed(folders[:2], *spells))
    # What a checkpoint does not have stays as the loader has it.
    later.load_state_dict({**later.state_dict(), **state})
    after, _ = global_batches(
        ranks=2, batch=6, count=4, state=later.state_dict(), **mixed(folders[:2], *spells)
    )
    assert (
        before + after
        == global_batches(ranks=1, batch=8, count=7, **mixed(folders[:2], *spells))[0]
    )


def test_a_source_that_was_made_longer_goes_on_with_its_new_rows(
    folders: list[str], tmp_path: Path
) -> None:
    longer = str(write_shards(tmp_path / "long", train=documents(2, 19), validation=[[160]]))
    settings = mixed(folders, packing="documents")
    long = mixed([*folders[:2], longer], packing="documents")
    before, state = global_batches(ranks=1, batch=24, count=4, **settings)  # 9 or 10 rows of it
    after, state = global_batches(ranks=3, batch=8, count=6, state=state, **long)
    last, _ = global_batches(ranks=2, batch=2, count=6, state=state, **long)
    one = loader(**long, batch=24)
    one.load_state_dict(global_batches(ranks=2, batch=2, count=4, **settings)[1])
    unbroken, _ = global_batches(ranks=1, batch=24, count=12, state=one.state_dict(), **long)
    assert after + last == unbroken
    rows = expected_rows(documents(2, 19), "documents")
    own = [row for batch in before + unbroken for row in batch if source_of(row) == 2]
    # All but the last ones: a pass of 7, and one of 7 and 12.
    firsts = own[: 7 + 19]
    assert [firsts.count(row) for row in rows] == [2] * 7 + [1] * 12
    old = RowLoader.Config(dataset_path=folders[0], sources=settings["sources"], weights=[])
    saved = old.identity(L)
    new = RowLoader.Config(dataset_path=folders[0], sources=long["sources"], weights=[])
    assert new.identity(L) != saved and new.as_of(saved, seq_len=L) == saved


def test_other_data_are_no_longer_source(folders: list[str], tmp_path: Path) -> None:
    """Whatever is longer and begins with something else, or is shorter, or has gone."""

    def config(*paths: str) -> RowLoader.Config:
        sources = [Source(path, path) for path in paths]
        return RowLoader.Config(dataset_path=paths[0], sources=sources)

    saved = config(*folders).identity(L)
    own = documents(2, 19)
    own[6] = [161]  # of the last shard of the first 7
    others = {
        "other": own,
        "shorter": documents(2, 6),
    }
    for name, texts in others.items():
        path = str(write_shards(tmp_path / name, train=texts, validation=[[160]]))
        ours = config(*folders[:2], path)
        assert ours.as_of(saved, seq_len=L) == ours.identity(L) != saved
    fewer = config(*folders[:2])
    assert fewer.as_of(saved, seq_len=L) == fewer.identity(L)
    more = config(*folders, str(tmp_path / "other"))
    assert more.as_of(saved, seq_len=L) == saved
    for broken in ("x", [1], [[1, 2]], [["a", "b", "c"]] * 3, [[0, 10**9, "x"]] * 3):
        assert config(*folders).as_of(saved | {"data.sources": broken}, seq_len=L) == saved


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{}",
        "[1]",
        *(f'[{{"given": 24, "lengths": {x}}}]' for x in ("[]", "[[0]]", "[[0, 5], [0, 5]]")),
    ],
)
def test_a_state_that_cannot_be_read_is_one_sentence(folders: list[str], broken: str) -> None:
    one = loader(**mixed(folders))
    with pytest.raises(ConfigError, match="the checkpoint's record of its sources cannot be read"):
        one.load_state_dict({**one.state_dict(), "consumed": 24, "sources": broken})

"""Batches, against rows that plain Python puts together."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.data.loader import RowLoader
from mixit_titan.errors import ConfigError, RankFailed
from mixit_titan.reading import WrongFile
from tests.forkserver import Forkserver
from tests.processes import assert_groups_end
from tests.shards import EOS, random_documents, write_shards

L = 16
TRAIN = random_documents(90, 50)
HELD_OUT = random_documents(23, 50, seed=1)
PACKINGS = ("documents", "stream")

Row = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Inputs, labels, positions."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "prepared"
    return str(write_shards(path, train=TRAIN, validation=HELD_OUT))


def expected_rows(documents: list[list[int]], packing: str) -> list[Row]:
    """One token after another."""
    if packing == "documents":
        rows = []
        for document in documents:
            tokens = [*document, EOS][: L + 1]
            padding = L - (len(tokens) - 1)
            labels = tokens[1:] + [IGNORE_INDEX] * padding
            rows.append((tuple(tokens[:-1] + [EOS] * padding), tuple(labels), tuple(range(L))))
        return rows
    stream, offset = [], []
    for document in documents:
        stream += [*document, EOS]
        offset += range(len(document) + 1)
    rows = []
    for start in range(0, len(stream) - 1, L):
        inputs, labels, positions = [], [], []
        for at in range(start, start + L):
            inside = at + 1 < len(stream)
            inputs.append(stream[at] if inside else EOS)
            labels.append(stream[at + 1] if inside and offset[at + 1] else IGNORE_INDEX)
            fresh = at == start or (at < len(stream) and offset[at] == 0)
            positions.append(0 if fresh else positions[-1] + 1)
        rows.append((tuple(inputs), tuple(labels), tuple(positions)))
    return rows


def loader(
    folder: str, rank: int = 0, ranks: int = 1, batch: int = 1, **settings: object
) -> RowLoader:
    config = RowLoader.Config(dataset_path=folder, **settings)
    return RowLoader(config, dp_rank=rank, dp_world_size=ranks, seq_len=L, local_batch_size=batch)


def rows_of(batch: tuple[dict[str, torch.Tensor], torch.Tensor]) -> list[Row]:
    tensors = (batch[0]["input"], batch[1], batch[0]["positions"])
    assert all(t.dtype == torch.int64 and t.is_contiguous() for t in tensors)
    return [
        tuple(tuple(values) for values in row)
        for row in zip(*(t.tolist() for t in tensors), strict=True)
    ]


def global_batches(
    folder: str, ranks: int, batch: int, count: int, state: dict | None = None, **settings: object
) -> tuple[list[list[Row]], dict]:
    """`count` global batches of 24 rows, put together from all ranks, and the state after them."""
    loaders = [loader(folder, rank, ranks, batch, **settings) for rank in range(ranks)]
    for one in loaders:
        if state is not None:
            one.load_state_dict(state)
    iterators = [iter(one) for one in loaders]
    batches = []
    for _ in range(count):
        rows = [
            row
            for _ in range(24 // (ranks * batch))
            for iterator in iterators
            for row in rows_of(next(iterator))
        ]
        assert len(rows) == 24
        batches.append(sorted(rows))
    states = [one.state_dict() for one in loaders]
    assert all(s == states[0] for s in states)
    return batches, states[0]


@pytest.mark.parametrize("packing", PACKINGS)
def test_an_epoch_has_every_row_once_and_the_next_another_order(folder: str, packing: str) -> None:
    expected = expected_rows(TRAIN, packing)
    iterator = iter(loader(folder, packing=packing))
    epochs = [[rows_of(next(iterator))[0] for _ in expected] for _ in "12"]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(expected)
    assert epochs[0] != epochs[1] and epochs[0] != expected
    other = iter(loader(folder, packing=packing, seed=1))
    assert [rows_of(next(other))[0] for _ in expected] != epochs[0]


@pytest.mark.parametrize("packing", PACKINGS)
def test_global_batches_do_not_depend_on_ranks_and_microbatches(folder: str, packing: str) -> None:
    expected, _ = global_batches(folder, 1, 24, 15, packing=packing)  # more than an epoch
    for ranks, batch in ((1, 3), (2, 6), (3, 8), (3, 2), (8, 3)):
        assert global_batches(folder, ranks, batch, 15, packing=packing)[0] == expected


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_resume_on_other_ranks_goes_on_exactly(folder: str, packing: str) -> None:
    expected, _ = global_batches(folder, 1, 24, 15, packing=packing)
    before, state = global_batches(folder, 2, 4, 6, packing=packing)
    after, state = global_batches(folder, 3, 8, 5, state, packing=packing)
    last, state = global_batches(folder, 8, 1, 4, state, packing=packing)
    assert before + after + last == expected
    assert state["consumed"] == 15 * 24


def test_workers_change_nothing_also_across_a_resume(folder: str) -> None:
    """They read ahead: what they have read and the rank has not seen is read again."""
    expected, _ = global_batches(folder, 1, 24, 9)
    before, state = global_batches(folder, 2, 4, 5, workers=3)
    after, _ = global_batches(folder, 1, 12, 4, state, workers=2)
    assert before + after == expected


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="not on macOS")
@pytest.mark.parametrize(
    "wrong", [RankFailed("the folder was changed"), WrongFile("0.tokens", "the folder was changed")]
)
def test_what_a_worker_finds_is_the_same_sentence(
    folder: str, monkeypatch: pytest.MonkeyPatch, wrong: Exception
) -> None:
    def read(*_: object) -> None:
        raise wrong

    broken = loader(folder, workers=1)
    monkeypatch.setattr(type(broken.batches.packed[0]), "read", read)
    with pytest.raises(type(wrong), match="the folder was changed") as error:
        next(iter(broken))
    assert str(error.value) == str(wrong)


def test_workers_end_when_the_rank_says_so_and_not_by_the_signals_of_others(folder: str) -> None:
    others = set(multiprocessing.active_children())
    batches = iter(loader(folder, workers=1))
    next(batches)
    (worker,) = set(multiprocessing.active_children()) - others
    for name in ("-TERM", "-INT"):  # from a process that is not the rank
        subprocess.run(["kill", name, str(worker.pid)], check=True)
    for _ in range(20):
        next(batches)
    assert worker.is_alive()
    worker.terminate()
    worker.join(60)
    assert worker.exitcode == 0


def read_with_little_shared_memory(folder: str, options: bytes) -> None:
    """In a mount namespace of this process. Says what became of it."""
    libc = ctypes.CDLL(None)
    private, namespace = 1 << 18 | 1 << 14, 0x20000
    if libc.unshare(namespace) or libc.mount(b"none", b"/", None, private, None):
        print("skipped")
        return
    assert libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, options) == 0
    try:
        for _, _ in zip(loader(folder, batch=2000, workers=2), range(20), strict=False):
            pass
        print("no error")
    except RankFailed as error:
        print(error)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /dev/shm")
@pytest.mark.parametrize("options", [b"size=2m", b"size=100k", b"nr_inodes=8"])
def test_no_room_in_shared_memory_is_one_sentence(
    folder: str, forkserver: Forkserver, options: bytes
) -> None:
    with forkserver.start(read_with_little_shared_memory, folder, options) as process:
        assert process.wait(60) == 0, process.output()
        said = process.output()
    if "skipped" in said:
        pytest.skip("nothing can be mounted here")
    assert "no room left in /dev/shm" in said and "set data.workers = 0" in said
    assert "Traceback" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_end_with_a_rank_that_is_killed(folder: str, forkserver: Forkserver) -> None:
    with forkserver.start(read_for_ever, folder) as rank:
        while "reading" not in rank.output():
            assert rank.poll() is None, rank.output()
            time.sleep(0.02)
        os.kill(rank.pid, signal.SIGKILL)
        rank.wait(10)
        assert_groups_end([rank.pid], seconds=4)  # torch's own watch looks every 5 s


def read_for_ever(folder: str) -> None:
    batches = iter(loader(folder, workers=2))
    for _ in range(4):
        next(batches)
    print("reading", flush=True)
    time.sleep(60)


@pytest.mark.parametrize(
    ("changed", "said"),
    {
        "packing": "data.packing was 'stream' and is 'documents'",
        "seed": "data.seed was 0 and is 5",
    }.items(),
)
def test_a_resume_that_counts_rows_otherwise_is_refused(
    folder: str, changed: str, said: str
) -> None:
    state = loader(folder).state_dict()
    other = loader(folder, **{changed: {"packing": "documents", "seed": 5}[changed]})
    with pytest.raises(ConfigError, match=said):
        other.load_state_dict(state)


def test_a_resume_on_as_many_other_documents_is_refused(folder: str, tmp_path: Path) -> None:
    path = write_shards(tmp_path, train=random_documents(90, 50, seed=2), validation=HELD_OUT)
    state = loader(folder, packing="documents").state_dict()
    with pytest.raises(ConfigError, match=r"tokens of the data was \d+ and is \d+"):
        loader(str(path), packing="documents").load_state_dict(state)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("limit", [-1, 11, 10**6])
def test_a_finite_loader_gives_each_row_once_on_any_number_of_ranks(
    folder: str, packing: str, limit: int
) -> None:
    expected = expected_rows(HELD_OUT, packing)
    settings = {"split": "validation", "infinite": False, "limit": limit, "packing": packing}
    kept = []
    for ranks, batch in ((1, 1), (3, 2), (8, 4)):
        per_rank = [list(loader(folder, r, ranks, batch, **settings)) for r in range(ranks)]
        assert len({len(batches) for batches in per_rank}) == 1  # or a collective would hang
        rows = [row for batches in per_rank for batch_ in batches for row in rows_of(batch_)]
        kept.append(sorted(row for row in rows if set(row[1]) != {IGNORE_INDEX}))
    assert kept[0] == kept[1] == kept[2]
    assert set(kept[0]) <= set(expected)
    assert len(kept[0]) == (11 if limit == 11 else len(expected))


def test_rows_of_one_document_can_go_without_positions(folder: str) -> None:
    batch, _ = next(iter(loader(folder, packing="documents", positions=False)))
    assert set(batch) == {"input"}


def test_a_split_without_a_row_is_refused(tmp_path: Path) -> None:
    path = str(write_shards(tmp_path, train=[[1] * (L - 1)], validation=[]))
    with pytest.raises(ConfigError, match=r"has 16 train tokens, fewer than one row of"):
        loader(path)
    with pytest.raises(ConfigError, match=r"has no validation document: prepare more text"):
        loader(path, split="validation", packing="documents")

"""Batches on their way to a GPU, which a meta tensor stands for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.data import loader
from mixit_titan.runtime import trainer
from mixit_titan.runtime.copies import Copied, start_copies
from tests.shards import write_shards


def test_a_copy_is_started_once_and_the_host_can_still_count() -> None:
    """What torchtitan's train_step does with a batch: it counts labels on the host, then asks for
    both on the device. A meta tensor stands for one on a GPU."""
    labels = torch.tensor([[3, IGNORE_INDEX, 5]])
    batches = iter([({"input": torch.tensor([[1, 3, 4]])}, labels)])
    ((inputs, given),) = start_copies(batches, torch.device("meta"))
    valid = torch.tensor(0, dtype=torch.int64)
    valid += (given != IGNORE_INDEX).sum()
    assert valid.item() == 2 and given.numel() == 3
    for tensor in (inputs["input"], given):
        copy = tensor.to("cuda")  # torchtitan's call: nothing is copied any more
        assert type(copy) is torch.Tensor and copy.device.type == "meta" and copy.shape == (1, 3)


class Copies(TorchDispatchMode):
    """Notes of each copy between devices whether the host does not wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.non_blocking: list[bool] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten._to_copy.default:
            self.non_blocking.append((kwargs or {}).get("non_blocking", False))
        return func(*args, **(kwargs or {}))


def test_the_host_does_not_wait_for_a_copy() -> None:
    batches = iter([({"input": torch.tensor([[1, 3]])}, torch.tensor([[3, 4]]))])
    with Copies() as copies:
        list(start_copies(batches, torch.device("meta")))
    assert copies.non_blocking == [True, True]


def test_the_loader_pins_what_a_gpu_will_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Memory that is not pinned is copied by the host, which waits."""
    write_shards(tmp_path, per_shard=8, train=[[1, 2, 3, 4]] * 20)
    asked = []

    def pinned(batches: object, **settings: object) -> list:
        asked.append(settings["pin_memory"])
        return []

    monkeypatch.setattr(loader, "StatefulDataLoader", pinned)
    settings = {"dp_world_size": 1, "dp_rank": 0, "seq_len": 4, "local_batch_size": 2}
    rows = loader.RowLoader.Config(dataset_path=str(tmp_path)).build(**settings)
    for on_gpu in (True, False):
        monkeypatch.setattr(loader, "has_gpu", lambda on_gpu=on_gpu: on_gpu)
        list(rows)
    assert asked == [True, False]


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_trainer_starts_copies_where_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    monkeypatch.setattr(trainer, "has_gpu", lambda: on_gpu)
    built = object.__new__(trainer.MixitTrainer)
    built.config = SimpleNamespace(validator=SimpleNamespace(enable=False))
    built.device, built.lr_schedulers = torch.device("meta"), []
    built.metrics_processor = SimpleNamespace(ntokens_since_last_log=0, data_loading_times=[])
    batch = ({"input": torch.tensor([[1, 3]])}, torch.tensor([[3, 4]]))
    inputs, labels = next(iter(built.batch_generator([batch])))
    assert {type(inputs["input"]), type(labels)} == {Copied if on_gpu else torch.Tensor}

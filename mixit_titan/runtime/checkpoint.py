"""torchtitan's checkpoints, each complete or not there (checkpoint_files.py), and each with the
identity of its model and data, which is checked before a load."""

import errno
import json
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse
from torch.distributed.tensor import DTensor
from torchtitan.components.checkpointer import DATALOADER, MODEL, AsyncMode, CheckpointManager
from torchtitan.tools.logging import logger
from torchtitan.trainer import Trainer

from mixit_titan.data.loader import COUNTED_BY, RowLoader
from mixit_titan.device import device_type
from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.files import write_json
from mixit_titan.model.hugging_face import hf_config
from mixit_titan.model.identity import differences, identity
from mixit_titan.runtime.checkpoint_files import (
    clear,
    hugging_face_steps,
    newest_complete,
    publish,
    unfinished,
)
from mixit_titan.runtime.tensor_reader import load_tensors, tensor_sizes

_KEY = "mixit_identity"


class IdentifiedCheckpointer(CheckpointManager):
    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        enable: bool = True
        initial_load_model_only: bool = False
        last_save_model_only: bool = False
        """The last checkpoint of a run is a full one, so that the run can be extended."""

    def __init__(
        self,
        config: Config,
        *,
        model_parts: list[torch.nn.Module],
        dataloader: RowLoader,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, model_parts=model_parts, dataloader=dataloader, **kwargs)
        self.identity = identity(model_parts[0].config) | dataloader.identity
        # Made once: asynchronous saves keep a pinned copy for each tensor that they have seen.
        self._identity_bytes = _encode(self.identity)
        self._end_of_text = dataloader.batches.packed.split.eos_id
        self._on_disk: str | None = None  # the checkpoint that holds the present state

    def save_now(self, step: int) -> None:
        """A full checkpoint outside of the interval, and written when this returns."""
        if not self.enable or self.load_only or step == 0:
            return
        self.maybe_wait_for_saving()
        checkpoint = self._create_checkpoint_id(step)
        if self._on_disk != checkpoint:
            states = self._flattened_model_states_sd()
            self.dcp_save(states, checkpoint_id=checkpoint, async_mode=AsyncMode.DISABLED)

    def dcp_save(
        self, state_dict: dict[str, Any], checkpoint_id: str, async_mode: AsyncMode, **kwargs: Any
    ) -> Future | AsyncSaveResponse | None:
        self._check_weights(checkpoint_id)
        to_hf = kwargs.get("to_hf", False)
        if not to_hf:
            state_dict = {**state_dict, _KEY: self._identity_bytes}
        final = Path(checkpoint_id)
        saved = super().dcp_save(state_dict, str(unfinished(final)), async_mode, **kwargs)
        self._on_disk = checkpoint_id
        if dist.get_rank() != 0:
            return saved
        if to_hf:
            shutil.rmtree(unfinished(final) / "sharded", ignore_errors=True)  # joined by now
            config = hf_config(self.sd_adapter.model_config, self._end_of_text)
            config["dtype"] = str(self.export_dtype).removeprefix("torch.")
            write_json(unfinished(final) / "config.json", config)
        # The first rank writes the metadata after all others have written their part.
        if isinstance(saved, AsyncSaveResponse):
            saved.upload_completion = _then(saved.upload_completion, lambda: publish(final))
        elif isinstance(saved, Future):
            saved = _then(saved, lambda: publish(final))
        else:
            publish(final)
        return saved

    def _load(self, step: int = -1) -> bool:
        """The first rank chooses the checkpoint for all."""
        if step == -1:
            step = self._choose()
        return super()._load(step)

    def _choose(self) -> int:
        newest = torch.tensor(-1, device=device_type())
        if dist.get_rank() == 0:
            folder = Path(self.folder)
            found = newest_complete(folder)
            clear(folder, found)
            newest.fill_(-1 if found is None else found)
        dist.broadcast(newest, 0)
        return int(newest)

    def dcp_load(
        self, state_dict: dict[str, Any], checkpoint_id: str, from_hf: bool, from_quantized: bool
    ) -> None:
        if not from_hf:
            initial = checkpoint_id == self.initial_load_path
            rows = DATALOADER in state_dict
            check_identity(checkpoint_id, self.identity, initial=initial, rows=rows)
        super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)
        self._on_disk = checkpoint_id

    def _check_weights(self, checkpoint_id: str) -> None:
        """What is saved can be gone on from: no rank holds a weight that is not finite."""
        weights = [p for part in self.states[MODEL].model for p in part.parameters()]
        shards = [p.to_local() if isinstance(p, DTensor) else p for p in weights]
        broken = torch.stack([~torch.isfinite(shard).all() for shard in shards]).any().int()
        dist.all_reduce(broken, dist.ReduceOp.MAX)
        if broken:
            raise RunFailed(
                f"the weights of {Path(checkpoint_id).name} are not finite and were not saved: the "
                "checkpoints before it are good. Lower the learning rate, and start again"
            )

    def discard_unfinished(self) -> None:
        """Give back the room of a save that failed."""
        if self.enable and dist.get_rank() == 0:
            for rest in Path(self.folder).glob(".unfinished-*"):
                shutil.rmtree(rest, ignore_errors=True)


def check_identity(
    checkpoint_id: str, ours: dict[str, Any], *, initial: bool = False, rows: bool = True
) -> None:
    """Refuse a checkpoint of another model, or where the loader goes on (`rows`) of other rows. An
    `initial` one only gives the weights to start from: it may have been trained from another seed,
    and other parts of it."""
    saved = read_identity(checkpoint_id)
    if saved is None:
        if ours["mixer"] == "mixing":
            raise ConfigError(
                f"the checkpoint {checkpoint_id} does not say which mixing matrices it was "
                "trained with: it was not written by mixit_titan"
            )
        logger.warning(f"{checkpoint_id} was not written by mixit_titan: loading it unchecked")
        return
    ignore = {"frozen", "debug.seed"} if initial else set()
    # The first checkpoints did not say what their rows are; their loader does when it is loaded.
    ignore |= set(COUNTED_BY) - saved.keys() if rows else set(COUNTED_BY)
    different = differences(saved, ours, ignore=ignore)
    if different:
        another = "checkpoint.initial_load_path" if initial else "--dump_folder"
        raise ConfigError(
            f"the checkpoint {checkpoint_id} does not fit, because {'; '.join(different)}: take "
            f"the settings and the data of the checkpoint, or another {another}"
        )


def latest_step(run: Trainer.Config) -> int | None:
    """The step that the run has come to: of its newest complete checkpoint, or of the weights in
    Hugging Face's format that it ended with."""
    if not run.checkpoint.enable:
        return None
    folder = Path(run.dump_folder) / run.checkpoint.folder
    found = [newest_complete(folder), *hugging_face_steps(folder)]
    return max((step for step in found if step is not None), default=None)


def read_identity(checkpoint_id: str) -> dict[str, Any] | None:
    """The identity in a checkpoint, or None in one that was not written by this project."""
    size = tensor_sizes(checkpoint_id).get(_KEY)
    if size is None:
        return None
    state = {_KEY: torch.empty(size, dtype=torch.uint8)}
    load_tensors(checkpoint_id, state)
    return json.loads(bytes(state[_KEY].tolist()))


def _encode(described: dict[str, Any]) -> torch.Tensor:
    """JSON in a tensor of bytes: nothing to unpickle."""
    return torch.tensor(list(json.dumps(described).encode()), dtype=torch.uint8)


def _then(saved: Future, finish: Callable[[], None]) -> Future:
    """Done when `saved` is and `finish` has been called."""
    finished: Future = Future()

    def on_saved(saved: Future) -> None:
        try:
            saved.result()
            finish()
            finished.set_result(None)
        except BaseException as error:  # a CheckpointException is not an Exception
            finished.set_exception(error)

    saved.add_done_callback(on_saved)
    return finished


def disk_is_full(error: BaseException) -> bool:
    """Whether that is why something could not be saved, on any rank."""
    errors = [error]
    if isinstance(error, CheckpointException):
        errors = [cause for cause, _ in error.failures.values()]
    return any(getattr(e, "errno", None) in (errno.ENOSPC, errno.EDQUOT) for e in errors)

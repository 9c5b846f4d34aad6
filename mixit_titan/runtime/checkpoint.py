"""torchtitan's checkpoints, each either complete or absent (checkpoint_files.py), and each with the
identity of its model and data, which is checked before it is loaded."""

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse
from torch.distributed.tensor import DTensor
from torchtitan.components.checkpointer import (
    DATALOADER,
    MODEL,
    OPTIMIZER,
    AsyncMode,
    CheckpointManager,
)
from torchtitan.components.optimizer import OptimizersContainer
from torchtitan.tools.utils import GarbageCollection
from torchtitan.trainer import Trainer

from mixit_titan.data.loader import RowLoader
from mixit_titan.errors import ConfigError
from mixit_titan.files import write_json
from mixit_titan.log import logger
from mixit_titan.model.hugging_face import hf_config
from mixit_titan.model.identity import identity
from mixit_titan.runtime.checkpoint_files import (
    NO_OTHER,
    clear,
    hugging_face_steps,
    newest_complete,
    newest_to_resume,
    problem_of,
    publish,
    put_back,
    set_aside,
    unfinished,
)
from mixit_titan.runtime.checkpoint_identity import KEY, check_identity, encode_identity
from mixit_titan.runtime.checkpoint_writer import CheckpointWriter
from mixit_titan.runtime.divergence import Diverged
from mixit_titan.runtime.llama_start import read_llama
from mixit_titan.runtime.optimizer import kind
from mixit_titan.runtime.tensor_reader import (
    OLDER,
    DamagedCheckpoint,
    explained,
    has_checksums,
    load_state,
    tensor_sizes,
)
from mixit_titan.runtime.watch import begin

T = TypeVar("T")


class IdentifiedCheckpointer(CheckpointManager):
    """torchtitan's CheckpointManager with atomic saves, checks of identity and damage, and weights
    that are verified to be finite before they are saved."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        """[checkpoint]: torchtitan's keys, with checkpoints on by default."""

        enable: bool = True
        initial_load_model_only: bool = False
        last_save_model_only: bool = False
        """By default the last checkpoint of a run is a full one, so that the run can be
        extended."""

    def __init__(
        self,
        config: Config,
        *,
        model_parts: list[torch.nn.Module],
        dataloader: RowLoader,
        optimizers: OptimizersContainer,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            config,
            model_parts=model_parts,
            dataloader=dataloader,
            optimizers=optimizers,
            **kwargs,
        )
        names = [type(optimizer).__name__ for optimizer in optimizers]
        self.identity = identity(model_parts[0].config) | dataloader.identity | kind(names)
        # Created once: asynchronous saves keep a pinned copy for each tensor that they have seen.
        self._identity_bytes = encode_identity(self.identity)
        self._as_of, self._end_of_text = dataloader.as_of, dataloader.eos_id
        self._on_disk: str | None = None  # the checkpoint that holds the current state

    def save_now(self, step: int) -> None:
        """Save a full checkpoint outside of the interval; it is on disk when this returns."""
        if not self.enable or self.load_only or step == 0:
            return
        begin("save", step)
        self.maybe_wait_for_saving()
        checkpoint = self._create_checkpoint_id(step)
        if self._on_disk != checkpoint:
            states = self._flattened_model_states_sd()
            self.dcp_save(states, checkpoint_id=checkpoint, async_mode=AsyncMode.DISABLED)

    def save(self, curr_step: int, last_step: bool = False) -> bool:
        """Save if the interval says so, as torchtitan does, and tell the watcher."""
        begin("save", curr_step)
        return super().save(curr_step, last_step)

    @torch.no_grad()
    def dcp_save(
        self,
        state_dict: dict[str, Any],
        checkpoint_id: str,
        async_mode: AsyncMode,
        enable_garbage_collection: bool = False,
        to_hf: bool = False,
    ) -> Future | AsyncSaveResponse | None:
        """Save under a temporary name; the first rank renames it once every rank has written its
        part."""
        self._check_weights(checkpoint_id)
        final = Path(checkpoint_id)
        if to_hf:
            saved = super().dcp_save(state_dict, str(unfinished(final)), async_mode, to_hf=True)
        else:
            state_dict = {**state_dict, KEY: self._identity_bytes}
            saved = self._write(state_dict, CheckpointWriter(unfinished(final)), async_mode)
        if enable_garbage_collection:
            GarbageCollection.collect("GC collection invoked by checkpointer.")
        self._on_disk = checkpoint_id
        if dist.get_rank() != 0:
            return saved
        if to_hf:
            shutil.rmtree(unfinished(final) / "sharded", ignore_errors=True)  # merged by now
            config = hf_config(self.sd_adapter.model_config, self._end_of_text)
            config["dtype"] = str(self.export_dtype).removeprefix("torch.")
            write_json(unfinished(final) / "config.json", config)
        # The first rank writes the metadata after all other ranks have written their parts.
        if isinstance(saved, AsyncSaveResponse):
            saved.upload_completion = _then(saved.upload_completion, lambda: publish(final))
        elif isinstance(saved, Future):
            saved = _then(saved, lambda: publish(final))
        else:
            publish(final)
        return saved

    def _write(
        self, state_dict: dict[str, Any], writer: CheckpointWriter, async_mode: AsyncMode
    ) -> Future | AsyncSaveResponse | None:
        """What torchtitan does, with a storage writer of our own."""
        if async_mode == AsyncMode.DISABLED:
            dcp.save(state_dict, storage_writer=writer)
            return None
        pinned = async_mode == AsyncMode.ASYNC_WITH_PINNED_MEM
        return dcp.async_save(
            state_dict,
            storage_writer=writer,
            process_group=self.pg,
            async_checkpointer_type=(
                AsyncCheckpointerType.PROCESS if pinned else AsyncCheckpointerType.THREAD
            ),
            async_stager=self.stager if pinned else None,
        )

    def _load(self, step: int = -1) -> bool:
        """The first rank chooses the checkpoint for all ranks. One that turns out to be damaged
        while it is read is set aside, and the one before it is loaded."""
        if step != -1:
            return super()._load(step)
        while True:
            newest = said_by_first_rank(self._choose)
            try:
                return super()._load(newest)
            except DamagedCheckpoint as damage:
                if newest == -1:  # that of checkpoint.initial_load_path
                    raise
                said_by_first_rank(partial(self._set_aside, newest, damage))

    def _choose(self) -> int:
        folder = Path(self.folder)
        put_back(folder)
        found = newest_to_resume(folder)
        clear(folder, found)
        return -1 if found is None else found

    def _set_aside(self, step: int, damage: DamagedCheckpoint) -> None:
        """Set a damaged checkpoint aside, unless it is the only one: the run would silently start
        again."""
        folder = Path(self.folder)
        if newest_complete(folder, before=step) is None:
            raise DamagedCheckpoint(folder / f"step-{step}", f"{damage.problem}{NO_OTHER}")
        logger.warning(f"{damage}. It is now {set_aside(folder, step)}")

    def dcp_load(
        self, state_dict: dict[str, Any], checkpoint_id: str, from_hf: bool, from_quantized: bool
    ) -> None:
        """Load after checking the identity; damage is a DamagedCheckpoint, the same on all
        ranks."""
        if from_hf:
            with explained(checkpoint_id):
                state_dict = read_llama(self.sd_adapter, checkpoint_id, state_dict)
        else:
            said_by_first_rank(partial(self._check, state_dict, checkpoint_id))
            if OPTIMIZER in state_dict:
                state_dict[OPTIMIZER].expect(with_state(checkpoint_id))
            load_state(checkpoint_id, state_dict)
        self.states[MODEL].load_state_dict(state_dict)
        self._on_disk = checkpoint_id

    def _check(self, state_dict: dict[str, Any], checkpoint_id: str) -> None:
        problem = problem_of(Path(checkpoint_id))
        if problem is not None:
            raise DamagedCheckpoint(checkpoint_id, problem)
        check_identity(
            checkpoint_id,
            self.identity,
            as_of=self._as_of,
            initial=checkpoint_id == self.initial_load_path,
            rows=DATALOADER in state_dict,
            optimizer=OPTIMIZER in state_dict,
        )
        if not has_checksums(checkpoint_id):
            logger.info(OLDER.format(checkpoint_id))

    def _check_weights(self, checkpoint_id: str) -> None:
        """Refuse to save a state that cannot be resumed: no rank may hold a weight that is not
        finite."""
        weights = [p for part in self.states[MODEL].model for p in part.parameters()]
        shards = [p.to_local() if isinstance(p, DTensor) else p for p in weights]
        broken = torch.stack([~torch.isfinite(shard).all() for shard in shards]).any().int()
        dist.all_reduce(broken, dist.ReduceOp.MAX)
        if broken:
            raise Diverged(f"the weights of {Path(checkpoint_id).name} are not finite")

    def discard_unfinished(self) -> None:
        """Free the space of a save that failed."""
        if self.enable and dist.get_rank() == 0:
            for rest in Path(self.folder).glob(".unfinished-*"):
                shutil.rmtree(rest, ignore_errors=True)


def with_state(checkpoint_id: str) -> set[str]:
    """The names of the weights whose optimizer state a checkpoint contains."""
    start = f"{OPTIMIZER}.state."
    names = tensor_sizes(checkpoint_id)
    return {n.removeprefix(start).rpartition(".")[0] for n in names if n.startswith(start)}


def latest_step(run: Trainer.Config) -> int | None:
    """The step that the run has reached: that of its newest complete checkpoint, or of the weights
    in Hugging Face's format that it ended with."""
    if not run.checkpoint.enable:
        return None
    folder = Path(run.dump_folder) / run.checkpoint.folder
    found = [newest_complete(folder), *hugging_face_steps(folder)]
    return max((step for step in found if step is not None), default=None)


def said_by_first_rank(say: Callable[[], T]) -> T:
    """Call `say` on the first rank; return its result, or raise its ConfigError, on all ranks."""
    said: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            said[0] = say()
        except ConfigError as error:
            said[1] = error
    dist.broadcast_object_list(said)
    if said[1] is not None:
        raise said[1]
    return said[0]


def _then(saved: Future, finish: Callable[[], None]) -> Future:
    """A future that is done once `saved` is done and `finish` has been called."""
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

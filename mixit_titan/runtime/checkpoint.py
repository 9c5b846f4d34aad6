"""torchtitan's checkpoints, each with the identity of its model, which is checked before a load."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.tools.logging import logger
from torchtitan.trainer import Trainer

from mixit_titan.data.loader import RowLoader
from mixit_titan.errors import ConfigError
from mixit_titan.model.identity import differences, identity

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
        self.identity = identity(model_parts[0].config, dataloader.config.tokenizer)
        # Made once: asynchronous saves keep a pinned copy for each tensor that they have seen.
        self._identity_bytes = _encode(self.identity)

    def dcp_save(self, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("to_hf", False):
            state_dict = {**state_dict, _KEY: self._identity_bytes}
        return super().dcp_save(state_dict, *args, **kwargs)

    def dcp_load(
        self, state_dict: dict[str, Any], checkpoint_id: str, from_hf: bool, from_quantized: bool
    ) -> None:
        if not from_hf:
            initial = checkpoint_id == self.initial_load_path
            check_identity(checkpoint_id, self.identity, initial=initial)
        super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)


def check_identity(checkpoint_id: str, ours: dict[str, Any], *, initial: bool = False) -> None:
    """Refuse a checkpoint of another model. An `initial` one only gives the weights to start from:
    it may have been trained from another seed, and other parts of it."""
    saved = read_identity(checkpoint_id)
    if saved is None:
        if ours["mixer"] == "mixing":
            raise ConfigError(
                f"the checkpoint {checkpoint_id} does not say which mixing matrices it was "
                "trained with: it was not written by mixit_titan"
            )
        logger.warning(f"{checkpoint_id} was not written by mixit_titan: loading it unchecked")
        return
    different = differences(saved, ours, ignore={"frozen", "debug.seed"} if initial else set())
    if different:
        raise ConfigError(
            f"the checkpoint {checkpoint_id} is of another model: {'; '.join(different)}. "
            "Choose another --dump_folder, or the settings of the checkpoint"
        )


def latest_step(run: Trainer.Config) -> int | None:
    """The step of the newest whole checkpoint in the run's folder."""
    folder = Path(run.dump_folder) / run.checkpoint.folder
    if not run.checkpoint.enable or not folder.is_dir():
        return None
    steps = [
        int(match[1])
        for entry in folder.iterdir()
        if (match := re.fullmatch(r"step-(\d+)", entry.name)) and (entry / ".metadata").is_file()
    ]
    return max(steps, default=None)


def read_identity(checkpoint_id: str) -> dict[str, Any] | None:
    """The identity in a checkpoint, or None in one that was not written by this project."""
    metadata = dcp.FileSystemReader(checkpoint_id).read_metadata()
    entry = metadata.state_dict_metadata.get(_KEY)
    if entry is None:
        return None
    state = {_KEY: torch.empty(entry.size, dtype=torch.uint8)}
    dcp.load(state, checkpoint_id=checkpoint_id, no_dist=True)
    return json.loads(bytes(state[_KEY].tolist()))


def _encode(described: dict[str, Any]) -> torch.Tensor:
    """JSON in a tensor of bytes: nothing to unpickle."""
    return torch.tensor(list(json.dumps(described).encode()), dtype=torch.uint8)

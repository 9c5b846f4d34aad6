"""torchtitan's checkpoints, each with the identity of its model, which is checked before a load."""

import json
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.tools.logging import logger

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
        self, config: Config, *, model_parts: list[torch.nn.Module], **kwargs: Any
    ) -> None:
        super().__init__(config, model_parts=model_parts, **kwargs)
        self.identity = identity(model_parts[0].config)
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
            self._check(checkpoint_id)
        super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)

    def _check(self, checkpoint_id: str) -> None:
        saved, ours = read_identity(checkpoint_id), dict(self.identity)
        if saved is None:
            if ours["mixer"] == "mixing":
                raise ConfigError(
                    f"the checkpoint {checkpoint_id} does not say which mixing matrices it was "
                    "trained with: it was not written by mixit_titan"
                )
            logger.warning(f"{checkpoint_id} was not written by mixit_titan: loading it unchecked")
            return
        if checkpoint_id == self.initial_load_path:
            # Other weights may be trained from here on than were before.
            saved.pop("frozen"), ours.pop("frozen")
        different = differences(saved, ours)
        if different:
            raise ConfigError(
                f"the checkpoint {checkpoint_id} is of another model: {'; '.join(different)}. "
                "Choose another --dump_folder, or the settings of the checkpoint"
            )


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

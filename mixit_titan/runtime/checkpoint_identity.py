"""The identity of a checkpoint: a description of its model and data, checked before it is
loaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mixit_titan.data.loader import COUNTED_BY
from mixit_titan.errors import ConfigError
from mixit_titan.files import json_text
from mixit_titan.json_form import parse_json
from mixit_titan.log import logger
from mixit_titan.model.identity import FINGERPRINTS, differences
from mixit_titan.runtime.optimizer import ADAM
from mixit_titan.runtime.tensor_reader import (
    DamagedCheckpoint,
    TensorReader,
    load_state,
    tensor_sizes,
)

KEY = "mixit_identity"
_LONGEST = 1 << 20


def encode_identity(described: dict[str, Any]) -> torch.Tensor:
    """A description as JSON in a tensor of bytes, so that nothing has to be unpickled."""
    return torch.tensor(list(json_text(described).encode()), dtype=torch.uint8)


def read_identity(checkpoint: Path | str) -> dict[str, Any] | None:
    """The identity in a checkpoint, or None if it was not written by this project."""
    if KEY not in TensorReader(checkpoint).read_metadata().state_dict_metadata:
        return None
    try:
        (length,) = tensor_sizes(checkpoint)[KEY]
        state = {KEY: torch.empty(min(length, _LONGEST), dtype=torch.uint8)}
        load_state(checkpoint, state, no_dist=True)
        found = parse_json(bytes(state[KEY].tolist()), dict)
    except DamagedCheckpoint:
        raise
    except (ConfigError, KeyError, ValueError) as error:
        problem = "the description of its model cannot be read"
        raise DamagedCheckpoint(checkpoint, problem) from error
    return found


def check_identity(
    checkpoint_id: str,
    ours: dict[str, Any],
    *,
    as_of: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    initial: bool = False,
    rows: bool = True,
    optimizer: bool = True,
) -> None:
    """Refuse a checkpoint of another model; if the loader continues (`rows`), one with other rows;
    if the `optimizer` continues, one of another kind. An `initial` checkpoint only provides the
    weights to start from: it may have been trained with another seed and with other parts frozen.

    `as_of` is RowLoader.as_of: our data as they were for a checkpoint saved before sources were
    extended.
    """
    saved = read_identity(checkpoint_id)
    if saved is None:
        if ours.keys() & set(FINGERPRINTS):
            raise ConfigError(
                f"the checkpoint {checkpoint_id} does not say which mixing matrices it was "
                "trained with: it was not written by mixit_titan"
            )
        logger.warning(f"{checkpoint_id} was not written by mixit_titan: loading it unchecked")
        return
    ours = ours | (as_of(saved) if as_of else {})
    ignore = {"frozen", "stack", "debug.seed"} if initial else set()
    # The first checkpoints did not describe their rows; their loader does when it is loaded.
    ignore |= set(COUNTED_BY) - saved.keys() if rows else set(COUNTED_BY)
    ignore |= set() if optimizer else set(ADAM)
    saved = ADAM | saved  # nor was there another kind of optimizer
    different = differences(_with_optimizer(saved), _with_optimizer(ours), ignore=ignore)
    if different:
        another = "checkpoint.initial_load_path" if initial else "--dump_folder"
        anew = ""
        if any(said.startswith("optimizer is ") for said in different):
            anew = "; --checkpoint.exclude_from_loading optimizer starts with a new optimizer state"
        raise ConfigError(
            f"the checkpoint {checkpoint_id} does not fit, because {'; '.join(different)}: use "
            f"the settings and the data of the checkpoint, or another {another}{anew}"
        )


def _with_optimizer(described: dict[str, Any]) -> dict[str, Any]:
    """The description with its optimizer as a sentence names it: AdamW's state is saved as
    Adam's."""
    if described.get("optimizer") == ADAM["optimizer"]:
        return described | {"optimizer": "Adam or AdamW"}
    return described

"""What a checkpoint says of the model and the data that it is of, checked before it is loaded."""

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
    """JSON in a tensor of bytes: nothing to unpickle."""
    return torch.tensor(list(json_text(described).encode()), dtype=torch.uint8)


def read_identity(checkpoint: Path | str) -> dict[str, Any] | None:
    """The identity in a checkpoint, or None in one that was not written by this project."""
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
        problem = "what it says of its model cannot be read"
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
    """Refuse a checkpoint of another model; where the loader continues (`rows`), of other rows;
    where the `optimizer` does, of another kind of it. An `initial` one only gives the weights to
    start from: it may have been trained from another seed, and other parts of it.

    `as_of` is RowLoader.as_of: what our data are for a checkpoint that was saved before sources
    were made longer."""
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
    # The first checkpoints did not say what their rows are; their loader does when it is loaded.
    ignore |= set(COUNTED_BY) - saved.keys() if rows else set(COUNTED_BY)
    ignore |= set() if optimizer else set(ADAM)
    saved = ADAM | saved  # there was no other kind of optimizer either
    different = differences(_with_optimizer(saved), _with_optimizer(ours), ignore=ignore)
    if different:
        another = "checkpoint.initial_load_path" if initial else "--dump_folder"
        anew = ""
        if any(said.startswith("optimizer is ") for said in different):
            anew = "; --checkpoint.exclude_from_loading optimizer begins with a new optimizer state"
        raise ConfigError(
            f"the checkpoint {checkpoint_id} does not fit, because {'; '.join(different)}: take "
            f"the settings and the data of the checkpoint, or another {another}{anew}"
        )


def _with_optimizer(described: dict[str, Any]) -> dict[str, Any]:
    """With its optimizer as a sentence names it: AdamW's state is saved as that of Adam."""
    if described.get("optimizer") == ADAM["optimizer"]:
        return described | {"optimizer": "Adam or AdamW"}
    return described

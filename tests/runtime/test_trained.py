"""A run's folder gives its model back."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import Metadata

from mixit_titan.data.loader import RowLoader
from mixit_titan.data.tokenizers import ByteTokenizer
from mixit_titan.errors import ConfigError
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.checkpoint_identity import KEY, read_identity
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.trained import load_trained
from tests.runtime.conftest import STEPS, Runs
from tests.runtime.strangers import change_metadata, put, saved


@pytest.mark.parametrize("variant", VARIANTS)
def test_its_weights_are_those_of_the_checkpoint(runs: Runs, tmp_path: Path, variant: str) -> None:
    trained = load_trained(runs.folder(variant))
    assert trained.step == STEPS
    assert trained.model.config.stack == VARIANTS[variant]
    assert isinstance(trained.tokenizer, ByteTokenizer)
    saved = runs.folder(variant) / "checkpoint" / f"step-{STEPS}"
    dcp_to_torch_save(saved, tmp_path / "plain.pt")
    plain = torch.load(tmp_path / "plain.pt", weights_only=True)
    weights = trained.model.state_dict()
    assert len(weights) > 10
    for name, tensor in weights.items():
        assert torch.equal(tensor, plain[name]), name
        assert not tensor.requires_grad


@pytest.mark.parametrize("name", ["llama", "mixit_official"])
def test_a_run_of_two_ranks_that_was_moved_has_its_validation_loss(
    uncommon_runs: Runs, tmp_path: Path, name: str
) -> None:
    """And its tokenizer: the folder is all that is needed."""
    moved = shutil.copytree(uncommon_runs.folder(name), tmp_path / "moved")
    trained = load_trained(moved)
    assert Path(trained.tokenizer_name).is_relative_to(moved)
    text = "def main() -> None:"
    assert trained.tokenizer.decode(trained.tokenizer.encode(text)) == text
    data = RowLoader.Config(dataset_path=str(uncommon_runs.root / "words"), split="validation")
    (packed,) = data.packed(trained.model.config.max_seq_len)
    arrays = packed.read(np.arange(packed.rows))
    inputs, labels, positions = (torch.from_numpy(np.array(a)) for a in arrays)
    loss = F.cross_entropy(trained.model(inputs, positions).flatten(0, 1), labels.flatten())
    lines = read_metrics(moved / "metrics.jsonl")
    expected = [line["validation_loss"] for line in lines if "validation_loss" in line][-1]
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_a_checkpoint_can_be_chosen(runs: Runs, tmp_path: Path) -> None:
    folder = shutil.copytree(runs.folder("mixit"), tmp_path / "run") / "checkpoint"
    shutil.copytree(folder / f"step-{STEPS}", folder / "step-7")
    assert load_trained(tmp_path / "run").step == STEPS
    assert load_trained(tmp_path / "run", 7).step == 7
    with pytest.raises(ConfigError, match=r"has no checkpoint of step 8 \(it has: 7, 20\)"):
        load_trained(tmp_path / "run", 8)
    next((folder / "step-7").glob("*.distcp")).write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"step-7 is not complete: .* has 5 of"):
        load_trained(tmp_path / "run", 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.width": "wide"}, "width is 'wide'"),
        ({"model.layers": True}, "layers is True"),
        ({"model.layers": 5000}, "5000 layers and .* tensors"),
        ({"model.vocab": 10**6}, "as tok_embeddings.weight, but the model that it describes"),
        ({"model.mixing.std": []}, r"std is \[\]"),
        ({"frozen": 3}, "frozen is 3, and not a list"),
        ({"mixer": []}, "mixer is a list, and not text"),
        ({"debug.seed": {}}, "debug.seed is an object, and not"),
        ("[" * 10**5, "there is no complete checkpoint"),
        ([1], "there is no complete checkpoint"),
    ],
)
def test_what_a_checkpoint_says_of_its_model_is_checked(
    runs: Runs, tmp_path: Path, change: object, message: str
) -> None:
    run = shutil.copytree(runs.folder("mixit"), tmp_path / "run")
    checkpoint = run / "checkpoint" / f"step-{STEPS}"
    said = json.dumps(change)
    if isinstance(change, dict):
        said = json.dumps(read_identity(checkpoint) | change)
    elif isinstance(change, str):
        said = change
    content = torch.tensor(list(said.encode()), dtype=torch.uint8)
    put(checkpoint, KEY, saved(content), as_bytes=False)
    change_metadata(checkpoint, lambda metadata: _resize(metadata, len(content)))
    with pytest.raises(ConfigError, match=message) as error:
        load_trained(run)
    assert "\n" not in str(error.value)


def _resize(metadata: Metadata, length: int) -> None:
    entry = metadata.state_dict_metadata[KEY]
    entry.size = torch.Size([length])
    entry.chunks[0].sizes = torch.Size([length])


def test_a_folder_without_checkpoints_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no complete checkpoint in"):
        load_trained(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no folder .*absent"):
        load_trained(tmp_path / "absent")


def test_a_tokenizer_that_is_missing_is_one_sentence(uncommon_runs: Runs, tmp_path: Path) -> None:
    run = shutil.copytree(uncommon_runs.folder("llama"), tmp_path / "run")
    shutil.rmtree(run / "tokenizer")
    with pytest.raises(ConfigError, match="does not contain the tokenizer of the run"):
        load_trained(run)


def test_a_run_keeps_one_tokenizer(uncommon_runs: Runs) -> None:
    kept = uncommon_runs.folder("llama") / "tokenizer"
    assert {file.name for file in kept.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    assert json.loads((kept / "tokenizer_config.json").read_text())["eos_token"]
    assert not (uncommon_runs.folder("mixit") / "tokenizer").exists()  # bytes have no files

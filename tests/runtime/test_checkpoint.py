"""A checkpoint is loaded by the model that wrote it, and by no other."""

import re
import shutil
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.config.checks import check_folder
from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.data.loader import COUNTED_BY
from mixit_titan.data.shards import read_manifest
from mixit_titan.errors import ConfigError
from mixit_titan.runtime.checkpoint_identity import check_identity, read_identity
from tests.data.test_tokenizers import write_ranks

from .conftest import SMALL, Runs

OTHER = {
    "mixit": {
        "--model.mixing.seed 1": "model.mixing.seed is 0 there and 1 here",
        "--debug.seed 1": "debug.seed is 0 there and 1 here",
        "--training.steps 15": "is at step 20, and training.steps is 15: raise it",
        "--model.mixing.recipe official": "model.mixing.std is 'width' there and 'heads' here",
        "--model.mixing.noise sign": "model.mixing.noise is 'gaussian' there and 'sign' here",
        "--model.variant standard": "mixer is 'mixing' there and 'attention' here",
    },
    "frozen_qk": {
        "--model.variant frozen_mlp": r"frozen is \['qk'\] there and \['mlp'\] here",
        "--model.layers 3": "model.layers is 2 there and 3 here",
    },
    "standard": {
        "--data.packing documents": "data.packing is 'stream' there and 'documents' here",
        "--data.seed 1": "data.seed is 0 there and 1 here",
        "--training.seq_len 16": "training.seq_len is 32 there and 16 here",
        "--data.path stdlib": r"rows of the data is \d+ there and \d+ here",
    },
}


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("variant", "override", "message"),
    [(v, o, m) for v, cases in OTHER.items() for o, m in cases.items()],
)
def test_a_checkpoint_of_another_run_is_refused_and_left_alone(
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture,
    variant: str,
    override: str,
    message: str,
) -> None:
    run = shutil.copytree(runs.folder(variant), tmp_path / "run")
    before = contents(run)
    arguments = [str(shipped_configs()[f"debug_{variant}"]), *SMALL, "--training.steps", "30"]
    arguments += ["--data.path", str(runs.data), "--dump_folder", str(run), *override.split()]
    monkeypatch.setattr("sys.argv", ["mixit-titan", "train", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    error = capfd.readouterr().err
    assert "Traceback" not in error
    lines = [line for line in error.splitlines() if line.startswith("mixit-titan: ")]
    assert len(lines) == 1
    assert re.search(message, lines[0]), lines[0]
    assert contents(run) == before


def test_the_trainer_checks_too(runs: Runs, tmp_path: Path) -> None:
    """What torchtitan's own entry point loads has not been through load_run's checks."""
    checkpoint = str(runs.folder("mixit") / "checkpoint" / "step-20")
    with pytest.raises(ConfigError, match=r"frozen is \[\] there and \['v'\] here"):
        check_identity(checkpoint, read_identity(checkpoint) | {"frozen": ["v"]})
    check_identity(checkpoint, read_identity(checkpoint) | {"frozen": ["v"]}, initial=True)


def test_other_rows_are_no_matter_to_a_loader_that_begins_anew(runs: Runs) -> None:
    arguments = [*SMALL, "--data.path", str(runs.data), "--dump_folder", str(runs.folder("mixit"))]
    arguments += ["--data.seed", "1", "--checkpoint.exclude_from_loading", "dataloader"]
    check_folder(load_run(str(shipped_configs()["debug_mixit"]), arguments, world_size=1))


def test_a_checkpoint_that_does_not_say_its_rows_is_left_to_the_loader(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = str(runs.folder("mixit") / "checkpoint" / "step-20")
    saved = read_identity(checkpoint)
    first = {key: value for key, value in saved.items() if key not in COUNTED_BY}
    monkeypatch.setattr("mixit_titan.runtime.checkpoint_identity.read_identity", lambda _: first)
    check_identity(checkpoint, saved | {"data.seed": 1})


def test_a_checkpoint_of_other_tokens_is_refused_by_the_names_of_both(
    runs: Runs, tmp_path: Path
) -> None:
    write_ranks(tmp_path / "own.tiktoken", 300)
    (tmp_path / "text.txt").write_text("One line of many.\n" * 100)
    data = ["--data.path", str(tmp_path / "text.txt")]
    data += ["--data.tokenizer", str(tmp_path / "own.tiktoken")]
    arguments = [*SMALL, *data, "--dump_folder", str(runs.folder("mixit"))]
    run = load_run(str(shipped_configs()["debug_mixit"]), arguments, world_size=1)
    checkpoint = str(runs.folder("mixit") / "checkpoint" / "step-20")
    ours = read_manifest(run.dataloader.dataset_path).tokenizer.fingerprint
    saved = read_manifest(runs.data).tokenizer.fingerprint
    with pytest.raises(ConfigError) as error:
        check_folder(run)
    assert str(error.value) == (
        f"the checkpoint {checkpoint} does not fit, because data.tokenizer is 'bytes' ({saved}) "
        f"there and 'own.tiktoken' ({ours}) here: use the settings and the data of the "
        "checkpoint, or another --dump_folder"
    )


def test_a_tokenizer_may_be_called_otherwise(runs: Runs) -> None:
    checkpoint = str(runs.folder("mixit") / "checkpoint" / "step-20")
    saved = read_identity(checkpoint)
    check_identity(checkpoint, saved | {"data.tokenizer.name": "other"})
    with pytest.raises(ConfigError, match=r"there and 'other' \(0\) here: .*\.initial_load_path"):
        other = {"data.tokenizer": "0", "data.tokenizer.name": "other"}
        check_identity(checkpoint, saved | other, initial=True)


def test_the_identity_says_what_the_matrices_are(runs: Runs) -> None:
    saved = read_identity(str(runs.folder("mixit") / "checkpoint" / "step-20"))
    assert saved["mixer"] == "mixing" and saved["model.mixing.seed"] == 0
    assert len(saved["fingerprint"]) == 16
    assert "model.mixing.noise" not in saved  # as in the first checkpoints, which are Gaussian
    assert "fingerprint" not in read_identity(str(runs.folder("random") / "checkpoint" / "step-20"))

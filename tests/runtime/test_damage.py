"""A checkpoint whose bytes have changed is refused: other weights are never loaded silently."""

import random
import shutil
from pathlib import Path

import pytest
import torch

from mixit_titan.cli import main
from mixit_titan.config.checks import check_folder
from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.tensor_reader import DamagedCheckpoint
from mixit_titan.runtime.trained import load_trained
from tests.forkserver import Forkserver

from . import strangers_worker
from .conftest import SMALL, STEPS, Runs


def flip(checkpoint: Path, draw: random.Random, count: int) -> None:
    """One bit each of `count` bytes anywhere in a checkpoint."""
    files = sorted(file for file in checkpoint.iterdir())
    for _ in range(count):
        file = draw.choices(files, [file.stat().st_size for file in files])[0]
        content = bytearray(file.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(content)


@pytest.mark.parametrize(("seeds", "bytes_"), [(range(8), 20), (range(40), 1)])
@pytest.mark.parametrize("older", [False, True])
def test_flipped_bits_are_found_or_change_nothing(
    runs: Runs, tmp_path: Path, seeds: range, bytes_: int, older: bool
) -> None:
    """Of a checkpoint without checksums of its own, the metadata is left as it is."""
    expected = load_trained(runs.folder("standard")).model.state_dict()
    found = 0
    for seed in seeds:
        run = shutil.copytree(runs.folder("standard"), tmp_path / str(seed))
        checkpoint = run / "checkpoint" / f"step-{STEPS}"
        if older:
            (checkpoint / "checksums.json").unlink()
            metadata = (checkpoint / ".metadata").read_bytes()
        flip(checkpoint, random.Random(seed), bytes_)
        if older:
            (checkpoint / ".metadata").write_bytes(metadata)
        try:
            weights = load_trained(run, STEPS).model.state_dict()
        except ConfigError:
            found += 1
        else:
            assert all(torch.equal(weights[name], expected[name]) for name in expected), seed
    assert found >= (len(seeds) if bytes_ > 1 and not older else len(seeds) // 10)


def test_no_run_resumes_from_flipped_bits(
    runs: Runs, tmp_path: Path, forkserver: Forkserver
) -> None:
    """Eight copies with 20 of them each, and no checkpoint before it."""
    words = [*SMALL, "--data.path", str(runs.data), "--training.steps", str(STEPS + 2)]
    folders = [tmp_path / str(seed) for seed in range(8)]
    for seed, folder in enumerate(folders):
        shutil.copytree(runs.folder("standard"), folder)
        flip(folder / "checkpoint" / f"step-{STEPS}", random.Random(seed), 20)
    jobs = [(str(shipped_configs()["debug_standard"]), words, folder) for folder in folders]
    forkserver.run_ranks(1, len(jobs), strangers_worker.main, jobs)
    for folder in folders:
        said = (folder / "said").read_text()
        assert f"the checkpoint {folder}/checkpoint/step-{STEPS} is damaged: " in said
        assert said.endswith("choose another --dump_folder to start again")
        assert read_metrics(folder / "metrics.jsonl")[-1]["step"] == STEPS


def damage(checkpoint: Path, key: str = "tok_embeddings.weight") -> None:
    """Other bytes in the middle of a tensor."""
    from mixit_titan.runtime.tensor_reader import TensorReader

    pieces = TensorReader(checkpoint).read_metadata().storage_data
    place = next(piece for index, piece in pieces.items() if index.fqn == key)
    file = checkpoint / place.relative_path
    content = bytearray(file.read_bytes())
    content[place.offset + place.length // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("command", ["generate", "export"])
def test_a_command_names_the_damage_and_takes_no_other_model(
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    command: str,
) -> None:
    run = shutil.copytree(runs.folder("mixit"), tmp_path / "run")
    checkpoint = run / "checkpoint" / f"step-{STEPS}"
    shutil.copytree(checkpoint, checkpoint.with_name("step-7"))
    damage(checkpoint)
    words = {"generate": ["--tokens", "2"], "export": ["--out", str(tmp_path / "out")]}
    for step, code in ((None, 2), (STEPS, 2), (7, None)):
        chosen = [] if step is None else ["--step", str(step)]
        arguments = ["mixit-titan", command, str(run), *words[command], *chosen]
        monkeypatch.setattr("sys.argv", arguments)
        if code is None:
            main()
            continue
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == code
        said = capsys.readouterr().err
        assert f"the checkpoint {checkpoint} is damaged: bytes " in said
        assert "load the one before it by --step 7" in said
    assert checkpoint.exists()


def test_a_run_with_no_good_checkpoint_does_not_start_again(runs: Runs, tmp_path: Path) -> None:
    run = shutil.copytree(runs.folder("mixit"), tmp_path / "run")
    checkpoint = run / "checkpoint" / f"step-{STEPS}"
    words = [*SMALL, "--data.path", str(runs.data), "--dump_folder", str(run)]
    config = load_run(str(shipped_configs()["debug_mixit"]), words, world_size=1)
    check_folder(config)
    damage(checkpoint, "mixit_identity")
    with pytest.raises(DamagedCheckpoint, match="there is no other to resume from: choose another"):
        check_folder(config)
    assert checkpoint.exists()

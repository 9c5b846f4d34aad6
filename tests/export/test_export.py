"""Other programs see the same model in an exported folder."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mixit_titan.cli import main
from mixit_titan.data.encoding import Encoder
from mixit_titan.export import command
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.trained import Trained, load_trained
from tests.export.conftest import read
from tests.export.reader import TEXT, TOKENS
from tests.runtime.conftest import STEPS, Runs

RUNS = [*VARIANTS, "llama", "mixit_official"]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "export", *arguments])
    main()


@pytest.fixture(scope="module")
def exported(uncommon_runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each of RUNS, exported by the command."""
    root = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in RUNS:
            call(monkeypatch, str(uncommon_runs.folder(name)), "--out", str(root / name))
    return {name: root / name for name in RUNS}


def logits(trained: Trained) -> torch.Tensor:
    return trained.model(TOKENS)


def test_mixit_needs_torch_and_safetensors_only(
    uncommon_runs: Runs, exported: dict[str, Path], tmp_path: Path
) -> None:
    names = ["mixit", "mixit_official"]
    found = read("plain", [exported[name] for name in names], tmp_path)
    for name in names:
        expected = logits(load_trained(uncommon_runs.folder(name)))
        torch.testing.assert_close(torch.tensor(found[name]["logits"]), expected, atol=1e-5, rtol=0)
        assert not [file for file in exported[name].iterdir() if "matri" in file.name]


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_transformers_gives_the_same_logits_and_ids(
    uncommon_runs: Runs, exported: dict[str, Path], tmp_path: Path
) -> None:
    found = read("transformers", list(exported.values()), tmp_path)
    for name in RUNS:
        trained = load_trained(uncommon_runs.folder(name))
        mixing = trained.model.config.stack.mixes
        seen, expected = found[name], logits(trained)
        assert seen["class"] == ("MixitForCausalLM" if mixing else "LlamaForCausalLM")
        assert not seen["problems"], name
        torch.testing.assert_close(torch.tensor(seen["logits"]), expected, atol=1e-5, rtol=0)
        loss = F.cross_entropy(expected[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())
        assert seen["loss"] == pytest.approx(loss.item(), abs=1e-4)
        ids = Encoder(trained.tokenizer, np.dtype(np.int64)).ids(TEXT)
        assert seen["ids"] == [int(i) for i in ids]
        assert seen["text"] == TEXT
        assert seen["end"] == trained.tokenizer.eos_id


def test_a_folder_with_something_in_it_is_refused(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, str(runs.folder("mixit")), "--out", str(tmp_path / "out"))
    assert exit_.value.code == 2
    assert "exists and is not empty: name a new folder" in capsys.readouterr().err
    assert (tmp_path / "out" / "mine").read_text() == "kept"


def test_a_folder_is_whole_or_not_there(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    arguments = (str(runs.folder("standard")), "--out", str(tmp_path / "out"))
    with monkeypatch.context() as patch:
        patch.setattr(command, "save_file", full)
        with pytest.raises(SystemExit) as exit_:
            call(patch, *arguments)
    assert exit_.value.code == 1
    assert f"the disk of {tmp_path}/out is full" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    call(monkeypatch, *arguments)
    said = f"wrote {tmp_path}/out: standard after step {STEPS}\n"
    said += f'Load it with AutoModelForCausalLM.from_pretrained("{tmp_path}/out")\n'
    assert capsys.readouterr().out == said
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    files.add("generation_config.json")
    assert {file.name for file in (tmp_path / "out").iterdir()} == files
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]

"""`mixit-titan params` as a user types it."""

import json
import subprocess
import sys

import pytest

from mixit_titan.cli import main
from mixit_titan.config.shipped import shipped_configs

FILE_1B = str(shipped_configs()["1b_fineweb_edu"])


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "params", *arguments])
    main()


def test_a_flavor_is_answered_without_torch() -> None:
    code = (
        "import sys; from mixit_titan.cli import main\n"
        "sys.argv = ['mixit-titan', 'params', '--flavor', '8b', '--variant', 'mixit', '--ranks', "
        "'8']; main(); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mixit, flavor 8b, sequence 2,048\n")


@pytest.mark.parametrize("name", shipped_configs())
def test_every_shipped_config_is_answered_without_its_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, name: str
) -> None:
    ranks = "64" if name.startswith("8b") else "8"
    call(monkeypatch, "--config", str(shipped_configs()[name]), "--ranks", ranks, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] and found["modelled"] and found["gpu"] == "H100"
    parts = found["memory_bytes"]
    later = max(parts.pop("logits"), parts.pop("backward"))
    assert parts.pop("total") == sum(parts.values()) + later
    assert [other["recomputation"] for other in found["alternatives"]] == [
        "none",
        "selective",
        "full",
    ]


def test_the_text_says_what_fits_and_that_it_is_modelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    words = ["--variant", "standard", "--training.local_batch_size", "64", "--gpu", "h100"]
    call(monkeypatch, "--config", FILE_1B, *words)
    said = capsys.readouterr().out
    assert said.startswith("1b_fineweb_edu.toml: standard on 8 x H100, modelled and not measured\n")
    table = [line.split("|") for line in said.splitlines() if line.startswith("|")]
    fits = {row[1].strip(): row[6].strip() for row in table[2:]}
    assert fits == {"none (this run)": "no", "selective": "no", "full": "yes"}
    assert "--training.local_batch_size 16 or --activation_checkpoint.mode full fits" in said
    assert "tokens/s" in said and "days for 24,000 steps" in said
    assert "45% of the peak of 989 TFLOPS" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "--flavro 160m": "unknown option '--flavro'",
        "--ranks 0": "--ranks is 0: it must be in 1..",
        f"--config {FILE_1B} --flavor 8b": "--flavor does not go with --config",
        f"--config {FILE_1B} --gpu H10": "unknown GPU 'H10'",
        f"--config {FILE_1B} --trainig.steps 3": "did you mean 'training'",
        f"--config {FILE_1B} --ranks 3": "is no multiple of training.local_batch_size",
    }.items(),
)
def test_a_mistake_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, arguments: str, message: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, *arguments.split())
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1

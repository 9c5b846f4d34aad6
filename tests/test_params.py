"""`mixit-titan params` as a user types it."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest

from mixit_titan.cli import main
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.config.shipped_estimates import shipped_estimate

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
    call(monkeypatch, "--config", str(shipped_configs()[name]), "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] and found["modeled"] and found["gpu"] == "H100"
    assert found["ranks"] == (64 if name.startswith("8b") else 8)  # as the file's degrees say
    toy = name.startswith(("debug_", "wikitext2"))
    assert (found["tokens_per_s"] is None) == (found["days"] is None) == toy
    parts = found["memory_bytes"]
    later = max(parts.pop("logits"), parts.pop("backward"))
    assert parts.pop("total") == sum(parts.values()) + later
    assert [other["recomputation"] for other in found["alternatives"]] == [
        "none",
        "selective",
        "full",
    ]


def test_the_text_says_what_fits_and_that_it_is_modeled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    words = ["--variant", "standard", "--training.local_batch_size", "64", "--gpu", "h100"]
    call(monkeypatch, "--config", FILE_1B, *words)
    said = capsys.readouterr().out
    assert said.startswith("1b_fineweb_edu.toml: standard on 8 x H100, modeled, not measured\n")
    table = [line.split("|") for line in said.splitlines() if line.startswith("|")]
    fits = {row[1].strip(): row[6].strip() for row in table[2:]}
    assert fits == {"none (this run)": "no", "selective": "no", "full": "yes"}
    assert "--training.local_batch_size 16 or --activation_checkpoint.mode full fits" in said
    step, hours = re.search(r" ([\d.]+) s per step, ([\d.]+) hours for 24,000 steps", said).groups()
    assert float(hours) == pytest.approx(24_000 * float(step) / 3600, abs=0.06)
    assert "45% of the peak of 989 TFLOPS" in said


@pytest.mark.parametrize("option", ["--variant mixit", "--seq-len 8192"])
def test_what_shipped_would_not_heed_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, option: str
) -> None:
    with pytest.raises(SystemExit):
        call(monkeypatch, "--shipped", *option.split())
    assert f"{option.split()[0]} cannot be combined with --shipped" in capsys.readouterr().err


def test_fewer_gpus_than_a_replica_has_share_the_model() -> None:
    four, eight = (
        shipped_estimate("8b_fineweb_edu", "standard", ranks=ranks, gpu="H100") for ranks in (4, 8)
    )
    assert four.memory.weights == 2 * eight.memory.weights


def test_a_toy_has_no_speed_and_its_rows_are_not_masked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    words = ["--config", str(shipped_configs()["debug_mixit"]), "--ranks", "8"]
    call(monkeypatch, *words)
    said = capsys.readouterr().out
    assert "speed             not modeled" in said and not re.search(r"\d tokens/s", said)
    assert "100% of the triangle" in said and "median of" not in said
    assert "1 row per GPU" in said and re.search(r"MiB per GPU       weights 0\.[1-9]", said)
    call(monkeypatch, *words, "--model.seq_len", "2048")
    assert "documents have a median of 600 tokens" in capsys.readouterr().out


def test_ranks_are_those_of_the_degrees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    degrees = {"replicate_degree 3 shard_degree 8": 24, "replicate_degree 3 shard_degree -1": 24}
    for words, ranks in degrees.items():
        first, n, second, m = words.split()
        changed = [f"--parallelism.data_parallel_{first}", n]
        changed += [f"--parallelism.data_parallel_{second}", m]
        batch = ["--training.global_batch_size", "-1"]
        call(monkeypatch, "--config", FILE_1B, *changed, *batch, "--json")
        assert json.loads(capsys.readouterr().out)["ranks"] == ranks


@pytest.mark.skipif(importlib.util.find_spec("torchao") is not None, reason="torchao is here")
def test_float8_is_counted_without_torchao(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    call(monkeypatch, "--config", FILE_1B, "--quantize.recipe", "rowwise")
    assert "float8 is modeled as bfloat16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "--flavro 160m": "unknown option '--flavro'",
        "--flavor 160n": "unknown --flavor '160n': did you mean '160m'?",
        "--stack mixit*5": "is 5 layers, which do not fill model.layers = ",
        "--stack mixit --variant mixit": "--stack = 'mixit' says what the layers are, and so",
        "--ranks 0": "--ranks is 0: it must be in 1..",
        f"--config {FILE_1B} --flavor 8b": "--flavor cannot be combined with --config",
        f"--config {FILE_1B} --gpu h10": "unknown GPU 'h10': did you mean 'H100'?",
        f"--config {FILE_1B} --gpu H100-SXM5": "unknown GPU 'H100-SXM5': did you mean 'H100'?",
        f"--config {FILE_1B} --gpu V100": "unknown GPU 'V100' (allowed",
        f"--config {FILE_1B} --rank 8": "unknown option '--rank': did you mean '--ranks'?",
        f"--config {FILE_1B} --shipped": "choose one of the two",
        f"--config {FILE_1B} --training.nice 3": "(and the command line) (allowed: training.local",
        f"--config {FILE_1B} --training.batch_size 3": "did you mean 'training.local_batch_size'?",
        f"--config {FILE_1B} --trainig.steps 3": "did you mean 'training'",
        f"--config {FILE_1B} --ranks 3": "is not a multiple of training.local_batch_size",
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


@pytest.mark.parametrize("stack", ["uniform", "learned standard"])
def test_a_stack_that_mixes_without_mixing_matrices_is_modeled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, stack: str
) -> None:
    call(monkeypatch, "--config", FILE_1B, "--stack", stack)
    assert "tokens/s" in capsys.readouterr().out

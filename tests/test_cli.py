"""The commands as a user types them."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from mixit_titan.cli import COMMANDS, main
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.run_state import StateFile, read_state
from tests.forkserver import Forkserver, Process, mixit_titan
from tests.processes import assert_groups_end

MIXIT = str(shipped_configs()["debug_mixit"])


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", *arguments])
    main()


@pytest.mark.parametrize(
    ("variant", "trainable"),
    {"standard": 790400, "frozen_mlp": 394880, "frozen_qk": 724352, "mixit": 724736}.items(),
)
def test_params_prints_table_4(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    variant: str,
    trainable: int,
) -> None:
    call(monkeypatch, "params", "--flavor", "table4", "--variant", variant, "--json")
    assert json.loads(capsys.readouterr().out)["trainable_params"] == trainable


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "trian x.toml": "unknown command 'trian': did you mean 'train'",
        "params --variant mixti": "did you mean 'mixit'",
        "params --flavor 9b": "unknown --flavor '9b'",
        "train nope.toml": "there is no config file 'nope.toml'",
        f"train {MIXIT} --dump_folder /proc/x": "'/proc/x' is not a writable directory",
        f"train {MIXIT} --nproc 0": "--nproc is 0: it must be in 1..4096",
        f"train {MIXIT} --nproc 3": "cannot be divided among 3 data-parallel ranks",
        f"train {MIXIT} --model.varant mixit": "did you mean 'model.variant'",
    }.items(),
)
def test_a_mistake_ends_with_one_sentence_and_code_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    arguments: str,
    message: str,
) -> None:
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, *arguments.split())
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, command: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, command, "--help")
    assert exit_.value.code == 0
    assert f"Example: mixit-titan {command}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", ["--help", "params --help", "params --flavor 8b", "train x"])
def test_a_reader_that_leaves_is_no_error(words: str) -> None:
    """As `| head` does."""
    unread, output = os.pipe()
    os.close(unread)
    command = [sys.executable, "-m", "mixit_titan", *words.split()]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    if words == "train x":  # which has nothing for it
        assert done.returncode == 2 and "there is no config file 'x'" in done.stderr
    else:
        assert done.returncode == 128 + signal.SIGPIPE and done.stderr == ""


def train_words(folder: Path, *arguments: str, steps: int) -> list[str]:
    words = ["train", MIXIT, "--dump_folder", str(folder), "--training.steps", str(steps)]
    words += ["--training.seq_len", "32", "--validator.freq", "4", "--metrics.log_freq", "1"]
    return [*words, *arguments]


def test_train_on_two_ranks_leaves_a_whole_run_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    loggers = ["--metrics.enable_wandb", "--metrics.enable_tensorboard"]
    words = train_words(run, "--nproc", "2", *loggers, steps=8)
    command = [sys.executable, "-m", "mixit_titan", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "logging offline" in done.stdout + done.stderr
    lines = read_metrics(run / "metrics.jsonl")
    training = [line for line in lines if "loss" in line]
    assert [line["step"] for line in training] == list(range(1, 9))
    assert {"grad_norm", "lr", "tokens", "tokens_per_s", "seconds"} <= training[0].keys()
    assert training[-1]["tokens"] == 8 * 8 * 32
    assert "mfu_percent" not in training[0]  # nobody knows this machine's peak
    validation = [line for line in lines if "validation_loss" in line]
    assert [line["step"] for line in validation] == [0, 4, 8]
    assert {"validation_loss", "perplexity", "bits_per_byte"} <= validation[0].keys()
    assert json.loads((run / "config.json").read_text())["training"]["steps"] == 8
    assert (run / "checkpoint" / "step-8" / ".metadata").is_file()
    assert {file.name for file in (run / "logs").iterdir()} == {"rank_0.log", "rank_1.log"}
    assert list(run.rglob("*.tfevents.*")) and list(run.rglob("offline-run-*"))
    (logged,) = run.rglob("*.wandb")
    assert b"run_mixit" in logged.read_bytes()  # the folder, and what the layers are


@pytest.mark.parametrize("ranks", [1, 2])
def test_ctrl_c_ends_cleanly_and_the_run_can_go_on(
    tmp_path: Path, forkserver: Forkserver, ranks: int
) -> None:
    run = tmp_path / "run"
    interrupted = ["--nproc", str(ranks), "--checkpoint.interval", "100000"]
    words = train_words(run, *interrupted, steps=100000)
    with forkserver.start(mixit_titan, *words) as process:
        wait_until(lambda: len(read_metrics(run / "metrics.jsonl")) >= 20, process)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        code, output = process.wait(300), process.output()
    assert code == 130, output
    assert "Traceback" not in output
    saved = max(int(p.name[5:]) for p in (run / "checkpoint").glob("step-*"))
    assert saved >= 10 and read_state(run) == ("stopped", saved, "saved")
    last = [line["step"] for line in read_metrics(run / "metrics.jsonl") if "loss" in line][-1]
    assert saved == last  # nothing of what was learned is lost
    *_, said, command = output.splitlines()
    assert said == f"Stopped after step {saved}: saved. Resume it with"
    assert sorted(shlex.split(command)) == sorted(["mixit-titan", *words])
    for said in ("Training completed", "is finished: raise --training.steps to continue"):
        words = train_words(run, "--nproc", "1", steps=saved + 3)
        with forkserver.start(mixit_titan, *words) as process:
            code, output = process.wait(300), process.output()
        assert code == 0 and said in output, output
    steps = [line["step"] for line in read_metrics(run / "metrics.jsonl") if "loss" in line]
    assert steps == list(range(1, saved + 4))


def test_a_run_killed_after_its_last_checkpoint_still_gets_its_last_validation(
    tmp_path: Path, forkserver: Forkserver
) -> None:
    run = tmp_path / "run"
    words = train_words(run, "--nproc", "1", steps=4)
    for killed in (False, True):
        with forkserver.start(mixit_titan, *words) as process:
            assert process.wait(300) == 0, process.output()
        if not killed:
            unbroken = read_metrics(run / "metrics.jsonl")
            assert [line["step"] for line in unbroken if "validation_loss" in line] == [0, 4]
            kept = "".join(json.dumps(line) + "\n" for line in unbroken[:-1])
            (run / "metrics.jsonl").write_text(kept)
            StateFile(str(run)).write("running", 3)
    resumed = read_metrics(run / "metrics.jsonl")
    assert [line["step"] for line in resumed] == [line["step"] for line in unbroken]
    assert resumed[-1]["validation_loss"] == unbroken[-1]["validation_loss"]
    assert read_state(run) == ("finished", 4, "")


def test_a_demo_that_is_terminated_leaves_no_training_behind(
    tmp_path: Path, forkserver: Forkserver
) -> None:
    with forkserver.start(mixit_titan, "demo", "--out", str(tmp_path)) as demo:
        wait_until(lambda: list(tmp_path.glob("standard_300/metrics.jsonl")), demo)
        os.kill(demo.pid, signal.SIGTERM)
        assert demo.wait(120) == 130
        assert "Run the same command to resume" in demo.output()
        assert_groups_end([demo.pid], seconds=60)  # the server of jobs ends after the demo


def test_a_demo_keeps_what_is_trained_and_compares_it_when_all_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    def write(variant: str, speed: float) -> None:
        steps = [{"step": n, "loss": 1 / n, "tokens_per_s": speed} for n in (1, 10)]
        validation = {"step": 10, "validation_loss": 0.5, "perplexity": 1.6}
        folder = tmp_path / f"{variant}_10"
        folder.mkdir(exist_ok=True)
        lines = [json.dumps(line) + "\n" for line in (*steps, validation)]
        (folder / "metrics.jsonl").write_text("".join(lines))

    first, *others = VARIANTS
    for variant in others:
        write(variant, 200.0)
    stopped = tmp_path / f"{first}_10" / "checkpoint" / "step-10"
    stopped.mkdir(parents=True)  # and not validated: there is nothing to resume
    failed = SimpleNamespace(is_alive=lambda: False, exitcode=1)
    monkeypatch.setattr("mixit_titan.jobs.process.start", lambda job, share: failed)
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, "demo", "--steps", "10", "--out", str(tmp_path))
    said = capsys.readouterr().err
    assert exit_.value.code == 1 and "5 jobs, 4 of them done before" in said
    assert f"1 of 5 jobs failed: see {tmp_path / f'{first}_10' / 'log.txt'}" in said
    assert not stopped.exists() and not (tmp_path / "demo.json").exists()
    write(first, 100.0)
    call(monkeypatch, "demo", "--steps", "10", "--out", str(tmp_path))
    rows = json.loads((tmp_path / "demo.json").read_text())["variants"]
    assert {row["variant"]: row["ratio"] for row in rows} == {first: 1} | dict.fromkeys(others, 2)
    assert all((tmp_path / name).stat().st_size for name in ("demo.md", "demo.png"))


def wait_until(condition: Callable[[], object], process: Process) -> None:
    """`process` must live as long."""
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.output()
        time.sleep(0.05)


def test_torchtitan_finds_the_runs_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torchtitan.config import ConfigManager

    manager = ConfigManager()
    config, rest = manager._load_config(["--module", "mixit_titan", "--config", "debug_frozen_qk"])
    assert config.model_spec.model.stack == VARIANTS["frozen_qk"] and rest == []
    parsed = manager.parse_args(
        ["--module", "mixit_titan", "--config", "debug_mixit", "--training.steps", "3"]
    )
    assert parsed.training.steps == 3
    with pytest.raises(ValueError, match=r"mixit_160m_fineweb_edu.*standard_8b_fineweb_edu"):
        manager._load_config(["--module", "mixit_titan", "--config", "mixit_160m_fineweb"])


def test_srun_starts_one_rank_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixit_titan.runtime.launch import ranks_from_environment

    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert ranks_from_environment() is None
    slurm = {"STEP_ID": "0", "PROCID": "5", "LOCALID": "1", "STEP_NUM_TASKS": "8"}
    for name, value in (slurm | {"JOB_ID": "123", "STEP_NODELIST": "node1"}).items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert ranks_from_environment() == 8
    assert os.environ["RANK"] == "5" and os.environ["LOCAL_RANK"] == "1"
    assert os.environ["MASTER_ADDR"] == "node1" and os.environ["MASTER_PORT"] == "20123"

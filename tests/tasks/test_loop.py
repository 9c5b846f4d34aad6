"""The light loop: resume, early stop, schedule, what it writes, what it refuses."""

import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torchtitan.components.loss import IGNORE_INDEX

from mixit_titan.errors import ConfigError, RunFailed
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tasks import loop
from mixit_titan.tasks.addition import Addition
from mixit_titan.tasks.evaluation import Batch, batch_of, evaluate, loss_of
from mixit_titan.tasks.examples import Examples
from mixit_titan.tasks.loop import Loop, extra_figures, learning_rate, train
from mixit_titan.tasks.models import build_model
from mixit_titan.tasks.prefetch import prefetched
from mixit_titan.tasks.progress import Reporter
from mixit_titan.tasks.settings import Settings
from tests.tasks.conftest import TINY, make_run

ADDITION = "--digits 2 --test 40 --variant frozen_qk"

# A run that gets a signal in the middle of step 13, three steps after a checkpoint.
# A trainer that a test has built in this process may have left Ctrl-C blocked.
ENDED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, [])
from mixit_titan.tasks import loop
from mixit_titan.tasks.command import task_command
whole_step = loop.Loop._train_step
def step(self, batch):
    if self.step == 12:
        os.kill(os.getpid(), {number})
    whole_step(self, batch)
loop.Loop._train_step = step
task_command(sys.argv[1:])
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_ended_goes_on_bit_for_bit(
    tmp_path: Path, fit: Callable, how: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM save what was learned."""
    words = ["addition", *TINY.split(), *ADDITION.split(), "--device", "cpu"]
    words += ["--out", str(tmp_path / "killed")]
    code = ENDED.format(number=int(how))
    command = [sys.executable, "-c", code, *words]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=600)
    assert not (tmp_path / "killed" / "result.json").exists()
    if how == signal.SIGKILL:
        assert ended.returncode == -how
    else:
        assert ended.returncode == 128 + how
        *_, said, command = ended.stderr.splitlines()
        assert said == "Stopped after step 13: saved. Resume it with"
        assert command == f"  {shlex.join(['mixit-titan', 'task', *words])}"
    state = torch.load(tmp_path / "killed" / "checkpoint.pt", weights_only=True)
    assert state["step"] == (10 if how == signal.SIGKILL else 13)
    resumed, unbroken = (fit(make_run("addition", ADDITION), name) for name in ("killed", "whole"))
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole")]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name
    for key in ("accuracy", "loss", "steps", "slices"):
        assert resumed[key] == unbroken[key]
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("killed", "whole")]
    assert [
        [{k: v for k, v in line.items() if k != "seconds"} for line in run] for run in lines
    ] == [[{k: v for k, v in line.items() if k != "seconds"} for line in lines[1]]] * 2


TWICE = """
import os, signal
signal.pthread_sigmask(signal.SIG_SETMASK, [])
signal.signal(signal.SIGINT, signal.default_int_handler)
from mixit_titan.tasks.stopping import noted_signals
try:
    with noted_signals() as noted:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        print(*map(int, noted), flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        print("was not interrupted")
except KeyboardInterrupt:
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_a_second_ctrl_c_ends_a_run_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True)
    assert ended.stdout == f"{int(signal.SIGTERM)} {int(signal.SIGINT)}\nTrue\n"
    first, again = ended.stderr.split("\n\n")
    assert "Ctrl-C again to quit now" in first
    assert again == "Interrupted again: quit without saving\n"


def test_the_folder_of_a_run(tmp_path: Path, fit: Callable) -> None:
    run = make_run("retrieval", "--pairs 3 --vocab 12 --test 50 --variant mixit")
    result = fit(run)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert {"task", "variant", "accuracy", "trainable_params", "steps", "seconds"} <= result.keys()
    assert (result["task"], result["variant"], result["steps"]) == ("retrieval", "mixit", 20)
    assert result["settings"]["pairs"] == 3 and result["settings"]["lr"] == run.settings.lr
    evaluations = [
        line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "accuracy" in line
    ]
    assert [line["step"] for line in evaluations] == [5, 10, 15, 20]
    assert evaluations[-1]["accuracy"] == result["accuracy"]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *("result.json", "metrics.jsonl", "model.safetensors")
    }


def test_a_result_has_the_figures_of_its_task(tmp_path: Path, fit: Callable) -> None:
    result = fit(make_run("memorization", "--keys 4 --values 8 --vocab 8"))
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    bits = 3 * 16 * result["accuracy"] / result["trainable_params"]
    assert extra_figures(result) == {"bits_per_parameter": pytest.approx(bits)}
    assert extra_figures(fit(make_run("addition", ADDITION), "other")) == {}


def test_a_figure_cannot_have_the_name_of_another(
    tmp_path: Path, fit: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was trained is kept."""
    monkeypatch.setattr(Addition, "figures", lambda self, score, trained: {"seed": 1.0})
    with pytest.raises(ConfigError, match="calls a figure 'seed', which every result has"):
        fit(make_run("addition", ADDITION))
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert not (tmp_path / "run" / "result.json").exists()


def test_the_weights_give_the_accuracy_again(tmp_path: Path, fit: Callable) -> None:
    run = make_run("retrieval", "--pairs 3 --vocab 12 --test 60 --variant mixit")
    result = fit(run)
    model = build_model(run)
    model.load_state_dict(load_file(tmp_path / "run" / "model.safetensors"))
    _, test = run.task.split(seed=0, train=0, test=60)
    right = 0
    for tokens, labels in zip(test.tokens, test.labels, strict=True):  # one by one, in plain Python
        logits = model(torch.tensor(tokens).long()[None])[0]
        place = next(n for n, label in enumerate(labels) if label != IGNORE_INDEX)
        right += int(logits[place].argmax()) == labels[place]
    assert right / 60 == result["accuracy"]


def test_a_finished_run_is_kept_and_another_is_refused(tmp_path: Path, fit: Callable) -> None:
    run = make_run("addition", f"{ADDITION} --lr 0.1")
    first = fit(run)
    written = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    assert fit(run) == first
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == written
    with pytest.raises(ConfigError, match=r"holds another run: lr is 0\.1 there and 0\.5 here"):
        fit(make_run("addition", f"{ADDITION} --lr 0.5"))


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_is_taken(
    tmp_path: Path,
    fit: Callable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damaged: int,
) -> None:
    """With none before it, the run starts again: its result is the same."""
    run, folder = make_run("addition", ADDITION), tmp_path / "run"
    unbroken = fit(run, "whole")
    step = Loop._train_step

    def stop(self: Loop, batch: Batch) -> None:
        if self.step == 12:
            raise KeyboardInterrupt
        step(self, batch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Loop, "_train_step", stop)
        fit(run)
    files = [folder / "checkpoint.pt", folder / "checkpoint.before.pt"]
    for file in files[:damaged]:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    result = fit(run)
    for key in ("accuracy", "loss", "steps", "slices"):
        assert result[key] == unbroken[key]
    for file in files[:damaged]:
        assert f"{file} is damaged and has been renamed to {file}.broken" in caplog.text
        assert file.with_name(f"{file.name}.broken").exists()
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("run", "whole")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_a_run_stops_at_its_target(tmp_path: Path, fit: Callable) -> None:
    assert fit(make_run("addition", f"{ADDITION} --target-accuracy 0.0"))["steps"] == 5


@pytest.mark.parametrize("variant", ["standard", "frozen_mlp", "mixit", "lstm", "linear"])
def test_training_moves_what_is_trained_and_nothing_else(
    tmp_path: Path, fit: Callable, variant: str
) -> None:
    run = make_run("addition", f"--digits 2 --test 10 --variant {variant}")
    before = build_model(run)
    fit(run)
    after = load_file(tmp_path / "run" / "model.safetensors")
    for name, param in before.named_parameters():
        moved = not torch.equal(param, after[name])
        assert (
            moved == param.requires_grad == (".feed_forward." not in name or "mlp" not in variant)
        )


def test_bfloat16_leaves_the_weights_in_float32(tmp_path: Path, fit: Callable) -> None:
    """And gives another loss than float32, so that it was there at all."""
    losses = [
        fit(make_run("addition", f"{ADDITION} {option}"), f"run{option}")["loss"]
        for option in ("--no-bf16", "--bf16")
    ]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.05)
    weights = load_file(tmp_path / "run--bf16" / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float32}


def test_wandb_gets_every_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.lines, self.ended = [], None

        def log(self, values: dict, step: int) -> None:
            self.lines.append({"step": step, **values})

        def finish(self, exit_code: int) -> None:
            self.ended = exit_code

    recorder = Recorder()
    monkeypatch.setattr("wandb.init", lambda **settings: recorder)
    run = make_run("addition", ADDITION)
    with Reporter("", 1, console=Console(quiet=True), wandb_settings=run.described()) as reporter:
        train(run, tmp_path / "run", device=torch.device("cpu"), reporter=reporter)
    assert recorder.lines == read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert recorder.ended == 0


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_the_learning_rate_rises_and_falls(decay: str) -> None:
    settings = Settings(lr=2.0, warmup=10, steps=110, decay=decay)
    rates = [learning_rate(settings, step) for step in range(110)]
    assert rates[0] == pytest.approx(0.2) and max(rates) == rates[9] == rates[10] == 2.0
    assert rates[60] == pytest.approx(1.0) and 0 < rates[-1] < 0.05
    quarter = {"linear": 1.5, "cosine": 1 + np.sqrt(0.5)}[decay]
    assert rates[35] == pytest.approx(quarter)


def test_scores_of_a_known_answer() -> None:
    labels = np.array([[IGNORE_INDEX, 1, 2], [IGNORE_INDEX, 0, 2]])
    examples = Examples(
        np.zeros((2, 3), dtype=np.int32),
        labels,
        {"row": np.array([[7], [8]]), "place": np.array([[0, 1, 2]])},
    )
    said = torch.tensor([[0, 1, 2], [0, 0, 1]])  # one of four is wrong
    logits = torch.nn.functional.one_hot(said, 3).float() * 2
    model = torch.nn.Identity()
    model.forward = lambda tokens: logits
    score = evaluate(model, examples, torch.device("cpu"), torch.autocast("cpu", enabled=False))
    assert (score.accuracy, score.exact) == (0.75, 0.5)
    assert score.slices == {"row": {"7": 1.0, "8": 0.5}, "place": {"1": 1.0, "2": 0.5}}
    right, wrong = (-np.log(np.exp(x) / (np.exp(2) + 2)) for x in (2, 0))
    assert score.loss == pytest.approx((3 * right + wrong) / 4, rel=1e-5)


def test_divergence_from_a_target() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.2, 0.2, 0.6])
    batch = Batch(
        torch.zeros(1, 1), torch.zeros(1, 1).long(), torch.tensor(np.log(p)).view(1, 1, 3)
    )
    loss = loss_of(torch.tensor(np.log(q)).view(1, 1, 3), batch)
    assert loss.item() == pytest.approx((p * np.log(p / q)).sum(), rel=1e-5)


def test_prefetched_batches_are_those_of_the_stream() -> None:
    stream, _ = make_run("addition", ADDITION).task.split(seed=0, train=0, test=1)
    for step, batch in enumerate(prefetched(stream, range(3, 20), 4, pin=False), 3):
        assert torch.equal(batch.tokens, batch_of(stream.batch(step, 4)).tokens)
    assert step == 19


class Recorded:
    """A stream that knows who asked for what, and breaks at a step."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.asked, self.threads, self.breaks_at = [], set(), breaks_at

    def batch(self, step: int, size: int) -> Examples:
        self.asked.append(step)
        self.threads.add(threading.current_thread())
        if step == self.breaks_at:
            raise ConfigError("there is no such example")
        return Examples(np.full((size, 2), step), np.zeros((size, 2)))


def test_an_error_in_the_data_is_raised_where_its_batch_is_asked_for() -> None:
    """As it was raised: a user's mistake stays one sentence."""
    stream = Recorded(breaks_at=2)
    batches = prefetched(stream, range(9), 4, pin=False)
    assert [int(next(batches).tokens[0, 0]) for _ in range(2)] == [0, 1]
    with pytest.raises(ConfigError) as caught:
        next(batches)
    assert str(caught.value) == "there is no such example"
    assert not any(thread.is_alive() for thread in stream.threads)


def test_the_thread_works_ahead_a_little_and_ends_with_the_loop() -> None:
    stream = Recorded()
    batches = prefetched(stream, range(1000), 4, pin=False)
    next(batches)
    (thread,) = stream.threads
    assert thread.is_alive() and thread is not threading.current_thread()
    time.sleep(0.2)  # enough for a thousand of these batches
    assert stream.asked == [0, 1, 2, 3, 4]
    batches.close()
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--lr 1e20 --warmup 1",
            r"the (loss|gradient norm) of addition is not finite at step [2-5]:",
        ),
        ("--lr 1e20 --warmup 1 --steps 1", "the test loss of addition is not finite at step 1:"),
    ],
)
def test_a_run_that_diverges_ends_and_says_so(
    tmp_path: Path, fit: Callable, words: str, said: str
) -> None:
    with pytest.raises(RunFailed, match=said + r" lower --lr, which is 1e\+20"):
        fit(make_run("addition", f"{ADDITION} {words}"))
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"metrics.jsonl", ".lock"}
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text


def test_one_bad_loss_ends_a_run_and_the_checkpoint_before_it_stays(
    tmp_path: Path, fit: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of step 13, where nothing is logged or evaluated."""
    monkeypatch.setattr(
        Loop, "_train_step", _with_a_bad_loss(Loop._train_step, at=12, monkeypatch=monkeypatch)
    )
    with pytest.raises(RunFailed, match="the loss of addition is not finite at step 13:"):
        fit(make_run("addition", ADDITION))
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert state["step"] == 10
    assert all(weight.isfinite().all() for weight in state["model"].values())


def _with_a_bad_loss(
    train_step: Callable, *, at: int, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Loop, Batch], None]:
    def step(self: Loop, batch: Batch) -> None:
        factor = float("nan") if self.step == at else 1.0
        monkeypatch.setattr(loop, "loss_of", lambda *given: factor * loss_of(*given))
        train_step(self, batch)

    return step

"""`mixit-titan task` and `mixit-titan sweep` as a user types them."""

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest

from mixit_titan.cli import main
from mixit_titan.errors import ConfigError
from mixit_titan.options import read_options
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.tasks.addition import Addition
from mixit_titan.tasks.command import TaskArguments
from mixit_titan.tasks.options import parse, preset_run, run_words
from mixit_titan.tasks.settings import Run
from mixit_titan.tasks.sweep import SweepArguments, grid_points
from mixit_titan.tasks.task import TASKS, task_class

SMALL = {"width": 8, "heads": 2, "layers": 1, "batch": 4, "steps": 2, "test": 20, "digits": 2}


def call(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", *line.split()])
    main()


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    kinds = {"good": ("great", "fine"), "bad": ("awful", "sad")}
    rows = [
        f'{label},"A {words[n % 2]} meal, number {n}!"'
        for n in range(60)
        for label, words in kinds.items()
    ]
    path.write_text("label,text\n" + "\n".join(rows) + "\n")
    return path


FORMS = {
    "addition --digits 10": (r"\d{10}\+\d{10}", r"\d{10,11}"),
    "retrieval": (r"\d+ \d+( \d+ \d+)* \d+", r"\d+"),
    "hop": (r"\d+ [a-d]+", r"[a-d_]+"),
    "modular --modulus 59 --train 2000": (r"\d+\+\d+ mod 59", r"\d+"),
    "dyck": (r"[()]+", r"yes|no"),
    "memorization": (r"\d+ \d+", r"\d+"),
    "imitation --test 50": (r"\d+( \d+)*", r"\d+( \d+)*"),
    "mqar": (r"[\d_]+( [\d_]+)*", r"\d+( \d+){15}"),
    "mad_recall": (r"\d+( \d+){46}", r"\d+( \d+)*"),
    "mad_fuzzy_recall": (r"(_ )*\d+( \d+)*", r"\d+( \d+)*"),
    "mad_noisy_recall": (r"\d+( \d+){46}", r"\d+( \d+)*"),
    "mad_selective_copying": (r"[\d_]+( [\d_]+)* \|( _){8}", r"\d+( \d+){7}"),
    "mad_compression": (r"(\d+ )+\|", r"\d+( \d+)*"),
    "mad_memorization": (r"\d+ \?( \d+ \?){15}", r"\d+( \d+){15}"),
    "induction": (r"\d+( \d+){22}", r"\d+( \d+){6}"),
    "sorting": (r"\d+( \d+){15} \|( \d+){15}", r"\d+( \d+){15}"),
    "dyck_k": (r"\(\d( \(\d| \d\))*", r"\d\)( \d\))*"),
    "parity": (r"[01]( [01])*", r"[01]( [01])*"),
    "modular_sum": (r"[0-4]( [0-4])*", r"[0-4]( [0-4])*"),
    "yelp --csv REVIEWS": (r"a (great|fine|awful|sad) meal , number \S+ !", r"good|bad"),
}


@pytest.mark.parametrize("line", FORMS)
def test_show_prints_examples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, reviews: Path, line: str
) -> None:
    question, answer = FORMS[line]
    line = f"task {line.replace('REVIEWS', str(reviews))} --show 5"
    shown = []
    for seed in (0, 0, 1):
        call(monkeypatch, f"{line} --seed {seed} --json")
        shown.append(capsys.readouterr().out)
        examples = [json.loads(row) for row in shown[-1].splitlines()]
        assert len(examples) == 5
        for example in examples:
            assert list(example) == ["question", "answer"]
            assert re.fullmatch(question, example["question"]), example
            assert re.fullmatch(answer, example["answer"]), example
    assert shown[0] == shown[1] != shown[2]
    call(monkeypatch, f"{line.removesuffix('5')}3 --json")
    assert capsys.readouterr().out.splitlines() == shown[0].splitlines()[:3]
    call(monkeypatch, line)
    plain = capsys.readouterr().out
    first = json.loads(shown[0].splitlines()[0])
    assert plain.splitlines()[0] == f"{first['question']} -> {first['answer']}"
    assert FORMS.keys() == {key for key in FORMS if key.split()[0] in TASKS}
    assert {key.split()[0] for key in FORMS} == set(TASKS)


def test_more_examples_than_a_batch_are_those_of_the_next_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    call(monkeypatch, "task addition --digits 2 --batch 4 --show 10 --json")
    shown = [json.loads(row)["question"] for row in capsys.readouterr().out.splitlines()]
    task = Addition(digits=2)
    stream, _ = task.split(seed=0, train=0, test=1)
    batches = [stream.batch(step, 4) for step in range(3)]
    rows = [row for batch in batches for row in zip(batch.tokens, batch.labels, strict=True)]
    assert shown == [task.write(*row)[0] for row in rows[:10]]


def test_a_few_reviews_are_shown_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    """None of the three is for testing: to train takes more."""
    path = tmp_path / "few.csv"
    path.write_text("label,text\ngood,a great meal\nbad,a sad meal\ngood,a fine meal\n")
    call(monkeypatch, f"task yelp --csv {path} --show 5")
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "a fine meal -> good",
        "a great meal -> good",
        "a sad meal -> bad",
    ]
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, f"task yelp --csv {path} --out {tmp_path / 'run'}")
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith("mixit-titan: yelp has no example to test on")


@pytest.mark.parametrize(
    ("line", "message"),
    {
        "task adition": "unknown task 'adition': did you mean 'addition'",
        "task addition --variant mixti": "unknown variant 'mixti': did you mean 'mixit'",
        "task addition --preset gpu": "unknown preset 'gpu'",
        "task addition --pairs 3": "unknown option of addition '--pairs' (allowed: --digits",
        "task addition --widht 3": "did you mean '--width'",
        "task addition --devcie=cpu": "option of addition '--devcie': did you mean '--device'",
        "task addition --prest cpu": "did you mean '--preset'",
        "task addition --otu x": "did you mean '--out'",
        "task addition --no-bais": "did you mean '--no-bias'",
        "task addition --digits 0": "--digits is 0",
        "task addition --heads 3": "--heads = 3 does not divide --width = ",
        "task addition --device cuda": "no GPU",
        "task addition --show 0": "--show is 0",
        "task addition --no-causal --variant mixit": "it is for tasks such as yelp",
        "task addition --mixer unifrom": "unknown --mixer 'unifrom': did you mean 'uniform'",
        "task addition --stack mixit@uper": "unknown place 'uper' in the stack 'mixit@uper': did",
        "task addition --stack mixit*3": "is 3 layers, which do not fill --layers = 2",
        "task addition --stack mixit@2": "says @2, but the layers are 0 to 1",
        "task addition --stack uniform-freeze-qk": "the uniform mixer has no queries and keys",
        "task addition --stack window-freeze-matrix": "the window mixer has no matrices to train",
        "task addition --mixer linear --freeze qk": "--freeze names 'qk', but the linear mixer has",
        "task addition --freeze qq": "unknown part in --freeze 'qq'",
        "task addition --stack mixit --freeze mlp": "--freeze names 'mlp', and beside a stack",
        "task addition --stack mixit --variant frozen_qk": "and so does --variant = 'frozen_qk'",
        "sweep addition --grid stack=mixit,standrd": "unknown variant or mixer 'standrd' in the",
        "sweep addition --grid stack=mixit*3": "is 3 layers, which do not fill --set layers = 2",
        "sweep addition --grid freeze=qq": "unknown part in --grid freeze 'qq'",
        "sweep addition --set freeze=qk --variants mixit": "--set freeze names 'qk', but the",
        "sweep addition --variants mixti": "unknown variant 'mixti': did you mean 'mixit'",
        "task retrieval --pairs 40 --vocab 64": "only 32 different keys",
        "task retrieval --keys 100 --vocab 64": "only 32 tokens for keys",
        "task addition --recipe paper": "--recipe applies only to mixing layers",
        "task yelp --csv nowhere.csv": "--csv 'nowhere.csv' cannot be read",
        "task yelp --csv REVIEWS --label-column stars": "unknown column of --label-column 'stars'",
        "task yelp --csv NOLABELS": "unknown column of --label-column 'label'",
        "task yelp --csv EMPTY": "row 2 of",
        "task addition --out /proc/run": "--out '/proc/run' cannot be created (No such file or",
        "sweep addition --out /proc/run": "--out '/proc/run' cannot be created",
        "sweep adition": "unknown task 'adition'",
        "sweep addition --grid lr": "'lr' is not part of a grid",
        "sweep addition --grid seed=1,2": "use --seeds",
        "sweep addition --steps 5": "--steps is an option of the task: use --set steps=5, or",
        "sweep addition --weight-decay=0.1": "use --set weight_decay=0.1, or --grid",
        "sweep addition --no-bf16": "use --set bf16=false, or --grid",
        "sweep addition --seed 5": "unknown option of sweep '--seed': did you mean '--seeds'",
        "sweep addition --grid pairs=1,2": "unknown option of addition '--pairs'",
        "sweep addition --grid shwo=1,2": "unknown option of addition '--shwo' (allowed: --digits",
        "sweep addition --grid heads=4,3": "--grid heads = 3 does not divide --set width = ",
        "sweep addition --seeds 0": "--seeds is 0",
        "sweep addition --set steps=1 --set width=8": "--set is given twice: name all of them",
    }.items(),
)
def test_a_mistake_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    reviews: Path,
    line: str,
    message: str,
) -> None:
    (tmp_path / "nolabels.csv").write_text("text\ngood\n")
    (tmp_path / "empty.csv").write_text("label,text\n1,good\n,bad\n")
    line = line.replace("REVIEWS", str(reviews)).replace("NOLABELS", str(tmp_path / "nolabels.csv"))
    line = line.replace("EMPTY", str(tmp_path / "empty.csv"))
    if "cuda" in line:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, line if "--out" in line else f"{line} --out {tmp_path / 'run'}")
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and message in error and error.count("\n") == 1, error


def test_the_hub_out_of_reach_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def unreachable(name: str) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(SystemExit):
        call(monkeypatch, "task yelp --show 1")
    assert "cannot be loaded from the hub (ConnectionError)" in capsys.readouterr().err


def test_the_hubs_set_keeps_its_split_and_no_text_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixit_titan.tasks.reviews import load_hub

    rows = {"train": [{"label": 1, "text": "a"}, {"label": 0, "text": "b"}]}
    rows["test"] = [{"label": 1, "text": "a"}]
    monkeypatch.setattr("datasets.load_dataset", lambda name: rows)
    assert load_hub() == ([("0", "b")], [("1", "a")])


def test_yelp_learns_two_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, reviews: Path, tmp_path: Path
) -> None:
    line = f"task yelp --csv {reviews} --variant mixit --length 8 --vocab 64 --width 16 --heads 2 "
    line += f"--batch 32 --steps 60 --lr 1e-2 --out {tmp_path / 'run'} --json"
    call(monkeypatch, line)
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"] == 1.0


def test_the_text_of_a_result_has_the_figures_of_its_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    line = "task memorization --keys 4 --values 8 --vocab 8 --steps 2 --out"
    call(monkeypatch, f"{line} {tmp_path / 'run'}")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    said = f"  {result['bits_per_parameter']:.3f} bits per parameter\n"
    assert said in capsys.readouterr().out


def test_a_finished_run_is_kept_and_said_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    flags = " ".join(f"--{key} {value}" for key, value in SMALL.items())
    printed = []
    for _ in range(2):
        call(monkeypatch, f"task addition {flags} --out {tmp_path / 'run'}")
        printed.append(capsys.readouterr())
    assert "finished run: kept" not in printed[0].err and "finished run: kept" in printed[1].err
    assert printed[0].out == printed[1].out


def test_a_run_shorter_than_its_warm_up_reaches_its_learning_rate_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    flags = " ".join(f"--{key} {value}" for key, value in SMALL.items())
    for warmup, said in (("", True), ("--warmup 3", True), ("--warmup 2", False)):
        run = tmp_path / f"run{warmup[-1:]}"
        call(monkeypatch, f"task addition {flags} --lr 0.5 {warmup} --out {run}")
        assert ("was cut to the 2 steps of the run" in capsys.readouterr().err) is said
        rates = [line["lr"] for line in read_metrics(run / "metrics.jsonl") if "lr" in line]
        assert rates == [0.25, 0.5]


def test_a_run_can_be_typed() -> None:
    """Also where a value is nothing, or begins with a dash."""
    for line in (
        "yelp --variant mixit --no-causal --csv=-odd.csv --no-bias --target-accuracy 0.5",
        "addition --variant random --freeze qk mlp --target-accuracy None --bf16 --lr 1e-05",
        "hop --freeze --weight-decay 0.25 --decay linear --hops 2",
        "retrieval --variant frozen_qk --preset paper --init-std None",
        "dyck --variant lstm --seed 3",
        "addition --mixer mixing --freeze v",
        "addition --stack mixit --heads 4",
        "addition --stack 'mixit*1 standard' --freeze head",
        "addition --stack frozen_qk*4 --freeze head --layers 4",
    ):
        name, *words = shlex.split(line)
        preset = "paper" if "paper" in words else "cpu"

        def read(name: str, words: list[str], preset: str = preset) -> Run:
            default = TaskArguments(run=preset_run(name, preset, words))
            return parse(TaskArguments[task_class(name)], default, name, words).run

        run = read(name, words)
        typed, *typed_words = run_words(run, preset)
        assert typed == name and read(name, typed_words) == run
        assert len(typed_words) <= len(words) + 4  # only what differs from the preset


def test_a_sweep_over_stacks() -> None:
    words = ["--grid", "stack=mixit,standard mixit@last,standard", "--set", "layers=2"]
    args = read_options(SweepArguments, ["addition", *words], prog="sweep")
    points = grid_points(args)
    assert [p.run.settings.name for p in points] == ["mixit", "standard mixit", "standard"]
    assert [p.axes["stack"] for p in points] == ["mixit", "standard mixit@last", "standard"]
    named = dataclasses.replace(args, variants=("mixit",))
    with pytest.raises(ConfigError, match="--variants and stack: leave one of them out"):
        grid_points(named)


@pytest.mark.parametrize("command", ["task", "task addition", "sweep"])
def test_help_shows_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, command: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, f"{command} --help")
    assert exit_.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"Example: mixit-titan {command.split()[0]}" in text


@pytest.mark.usefixtures("job_server")
def test_a_sweep_skips_what_is_done_and_repeats_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    small = " ".join(f"{key}={value}" for key, value in SMALL.items() if key != "width")
    line = f"sweep addition --variants mixit --grid width=8,12 --set {small} --jobs 2 "
    line += f"--out {tmp_path}"
    call(monkeypatch, line)
    assert "2 jobs, 0 of them done before" in capsys.readouterr().err
    results = sorted(tmp_path.glob("*/result.json"))
    assert {json.loads(path.read_text())["settings"]["width"] for path in results} == {8, 12}
    results[0].write_text('{"accuracy": 1')
    times = [path.stat().st_mtime_ns for path in results]
    call(monkeypatch, line)
    assert "2 jobs, 1 of them done before" in capsys.readouterr().err
    assert [path.stat().st_mtime_ns == t for path, t in zip(results, times, strict=True)] == [
        False,
        True,
    ]
    report = json.loads((tmp_path / "sweep.json").read_text())
    assert [group["axes"] for group in report["groups"]] == [{"width": "8"}, {"width": "12"}]
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")

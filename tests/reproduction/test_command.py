"""`mixit-titan reproduce` as a user types it."""

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mixit_titan.analysis.covariance import start_rows
from mixit_titan.analysis.sequences import plain_sequences
from mixit_titan.analysis.untrained import language_models
from mixit_titan.cli import main
from mixit_titan.jobs.runner import Runner
from mixit_titan.reproduction.exhibit import Cell, Exhibit, jobs_of
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.jobs import Plan, task_point
from mixit_titan.reproduction.language import at_start
from tests.processes import assert_groups_end

Command = Callable[..., None]


def test_a_report_has_values_figures_and_verdicts(reproduced: Path) -> None:
    found = json.loads((reproduced / "report.json").read_text())
    assert (found["scale"], found["seeds"]) == ("cpu", 2)
    entries = {entry["id"]: entry for entry in found["exhibits"]}
    assert list(entries) == ["figure3", "table5", "table6"]  # not what --only leaves out
    depth = entries["table6"]
    assert depth["columns"] == ["1", "2", "8", "16"]  # ours and the paper's
    rows = {row["name"]: row for row in depth["rows"]}
    assert [cell["paper"] for cell in rows["random"]["cells"]] == [None, 1.0, 0.2353, 0.2288]
    accuracy = {}
    for folder in (reproduced / "tasks").iterdir():
        result = json.loads((folder / "result.json").read_text())
        at = result["settings"]
        if result["task"] == "retrieval":
            continue
        accuracy[at["variant"], at["layers"], at["heads"], at["seed"]] = result["accuracy"]
    assert len(accuracy) == 5 * 2  # two of mixit by heads, four by depth, one of them the same
    for variant in ("mixit", "random"):
        for column, layers in enumerate((1, 2)):
            two = [accuracy[variant, layers, 2, seed] for seed in (400, 401)]
            cell = rows[variant]["cells"][column]
            assert cell["values"] == {"400": two[0], "401": two[1]}
            assert cell["mean"] == pytest.approx(sum(two) / 2)
            low, high = cell["interval"]
            assert 0 <= low <= min(two) and max(two) <= high <= 1
    assert depth["seconds"] > 0 and depth["jobs_left"] == 0
    (note,) = depth["notes"]
    assert "random init_std 0.0566, embedding_std 0.02" in note
    assert "layers 1/2" in depth["setting"] and "digits 2" in depth["setting"]
    assert (reproduced / depth["figure"]).read_bytes()[1:4] == b"PNG"
    verdicts = {claim["id"]: claim["verdict"] for claim in found["claims"]}
    assert verdicts["table6.mixit"] == "does not hold"  # two steps teach nothing
    assert verdicts["table5.yelp"] == "not run"
    assert {id.partition(".")[0] for id in verdicts} == set(entries)
    assert all(claim.keys() >= {"id", "share", "paper", "ours"} for claim in found["claims"])


def test_figure_3_reads_the_analysis_of_a_run(reproduced: Path) -> None:
    file = next(
        path
        for path in reproduced.glob("attention/*/attention.json")
        if json.loads((reproduced / "tasks" / path.parent.name / "result.json").read_text())[
            "settings"
        ]["seed"]
        == 400
    )
    scores = json.loads(file.read_text())["heads"]
    found = json.loads((reproduced / "report.json").read_text())
    (entry,) = [entry for entry in found["exhibits"] if entry["id"] == "figure3"]
    assert entry["columns"] == ["layer 1", "layer 2", "uniform", "accuracy"]
    for row, kind in zip(entry["rows"], ("previous", "induction"), strict=False):
        first, second, uniform, _ = (cell["values"] for cell in row["cells"])
        for layer, values in enumerate((first, second)):
            assert values["400"] == max(head[kind] for head in scores if head["layer"] == layer)
        assert 0 < uniform["400"] < 1
    (accuracy,) = [row["cells"][3] for row in entry["rows"] if row["name"] == "the model"]
    assert accuracy["values"].keys() == {"400", "401"}
    assert (reproduced / entry["figure"]).read_bytes() == (file.with_suffix(".png")).read_bytes()
    assert "induction head score is" in entry["alt"]


def test_a_report_before_the_first_map_has_no_figure_3(
    reproduced: Path, command: Command, tmp_path: Path
) -> None:
    shutil.copytree(reproduced / "tasks", tmp_path / "tasks")

    def stopped(self: Runner, ended: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "run", stopped)
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            command("--only", "figure3", "--seeds", "2", "--out", str(tmp_path))
    (entry,) = json.loads((tmp_path / "report.json").read_text())["exhibits"]
    assert entry["figure"] is None
    accuracy = {row["name"]: row["cells"][3] for row in entry["rows"]}["the model"]
    assert accuracy["values"].keys() == {"400", "401"}


def test_table_7_reads_untrained_models_of_the_analysis() -> None:
    tokens = torch.arange(24).view(2, 12)
    start, sequences = language_models(tokens, width=8, heads=2), plain_sequences(tokens, "tokens")
    found = {"rows": start_rows(start, sequences, [2, 4])}
    found["rows"].append({"variant": "mixit", "layers": 2, "trained": True, "covariance": -1.0})
    for variant in ("random", "mixit"):
        for layers in (2, 4):
            alone = start_rows(start, sequences, [layers])
            (expected,) = [row for row in alone if row["variant"] == variant]
            assert at_start(found, variant, layers) == expected["covariance"]


def test_the_markdown_says_what_was_not_run(reproduced: Path) -> None:
    text = (reproduced / "report.md").read_text()
    assert "`table5.yelp`" in text and "**not run**" in text and "**does not hold**" in text
    assert "(paper 23.53%)" in text and "table1" not in text.lower()


def test_another_only_reports_that_and_runs_nothing_again(
    reproduced: Path, command: Command, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    shutil.copytree(reproduced, out := tmp_path / "out")
    results = {path: path.stat().st_mtime_ns for path in out.glob("tasks/*/result.json")}
    before = json.loads((out / "report.json").read_text())
    command("--only", "table6", "--seeds", "2", "--out", str(out))
    assert "8 jobs, 8 of them done before" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in results} == results
    after = json.loads((out / "report.json").read_text())
    (one,), (same,) = ([e for e in r["exhibits"] if e["id"] == "table6"] for r in (after, before))
    assert one.pop("command").replace(str(out), str(reproduced)) == same.pop("command")
    assert one == same and len(after["exhibits"]) == 1
    assert after["claims"] == [c for c in before["claims"] if c["id"].startswith("table6.")]


def test_an_unknown_exhibit_gets_the_nearest_name(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as exit:
        command("--only", "tabel5", "--out", str(tmp_path / "out"))
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert "'tabel5'" in error and "did you mean 'table5'?" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        "--seeds 0",
        "--jobs 0",
        "--first-seed 10000",
        "--first-seed 9999 --seeds 2",
        "--steps 0",
        "--reviews no.csv",
        "--text no",
        "--text . --scale paper",
    ],
)
def test_a_wrong_option_is_one_sentence(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture, words: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        command(*words.split(), "--out", str(tmp_path / "out"))
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert words.split()[0] in error and error.count("\n") == 1


def test_a_failed_job_is_named_and_the_others_run(
    tiny_exhibits: dict[str, Exhibit],
    command: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    """Reviews without a second label cannot be trained on."""
    reviews = tmp_path / "reviews.csv"
    reviews.write_text("label,text\ngood,a great meal\n")
    own = {"width": 8, "heads": 2, "layers": 1, "steps": 1}
    broken = dataclasses.replace(
        tiny_exhibits["table5"],
        cells=lambda plan: {
            name: {"4": Cell((task_point(plan, task, "mixit", **own),))}
            for name, task in (("Yelp", "yelp"), ("Dyck-1", "dyck"))
        },
    )
    words = ["--only", "table5", "--reviews", str(reviews), "--out", str(tmp_path / "out")]
    words += ["--seeds", "1"]
    with pytest.raises(SystemExit) as exit:
        command(*words, table5=broken)
    assert exit.value.code == 1
    assert "1 of 2 jobs failed" in capsys.readouterr().err
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    (entry,) = [entry for entry in found["exhibits"] if entry["id"] == "table5"]
    at = entry["columns"].index("4")
    ours = {row["name"]: row["cells"][at]["mean"] for row in entry["rows"]}
    assert ours["Yelp"] is None and ours["Dyck-1"] is not None
    (note,) = entry["notes"]
    assert note.startswith("failed: yelp mixit") and note.endswith("log.txt")
    assert "needs reviews of two labels" in Path(note.rpartition(" ")[2]).read_text()


def test_an_interrupted_run_leaves_a_report_and_no_process(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """And while it runs, another is refused."""
    out = tmp_path / "out"
    words = ["--only", "table6", "--steps", "1000000", "--seeds", "1", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "mixit_titan", "reproduce", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background of a script has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_until(lambda: len([*out.glob("tasks/*/metrics.jsonl")]) == 2, process)
        with pytest.raises(SystemExit) as second:
            command(*words)
        assert second.value.code == 2
        assert "is writing to" in capsys.readouterr().err
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=300)
        assert_groups_end([process.pid], seconds=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130 and "Interrupted. Run the same command" in said
    found = json.loads((out / "report.json").read_text())
    (entry,) = [entry for entry in found["exhibits"] if entry["id"] == "table6"]
    assert entry["notes"][-1] == "not run yet: 6 of 6 jobs" and entry["figure"] is None
    assert all(claim["verdict"] == "not run" for claim in entry["claims"])


def wait_until(condition: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    """`process` must live as long."""
    for _ in range(3000):
        if condition():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise TimeoutError


def test_the_list_has_every_training_of_the_paper_s_scale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Table 1: 12 settings of hop and 216 of retrieval for four variants. Each is a command."""
    out = tmp_path / "a folder"

    def lines(*words: str) -> list[list[str]]:
        words = ("reproduce", "--scale", "paper", "--list", "--out", str(out), *words)
        monkeypatch.setattr("sys.argv", ["mixit-titan", *words])
        main()
        return [shlex.split(line) for line in capsys.readouterr().out.splitlines()]

    listed = lines("--only", "table1")
    assert len(listed) == 4 * (12 + 216) and all(words[0] == "task" for words in listed)
    assert len({words[-1] for words in listed}) == len(listed)
    assert {words[-1] for words in listed} == {
        str(job.folder) for job in jobs_of(EXHIBITS["table1"].cells(Plan("paper", out)))
    }
    assert len(lines("--only", "table1", "--no-search")) == 4 * 2 * 3
    kinds = [words[0] for words in lines("--only", "table2,table7,throughput,figure3")]
    # Three seeds of two corpora for three variants; what Figure 3 looks into. The rest is not for
    # an array.
    assert sorted(kinds) == 3 * ["task"] + 18 * ["train"]
    assert not out.exists()

"""What the exhibits ask for."""

from pathlib import Path

import pytest

from mixit_titan.jobs.job import Job
from mixit_titan.reproduction.exhibit import jobs_of
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.induction import most_pairs
from mixit_titan.reproduction.jobs import Plan, task_grid, training_words
from mixit_titan.tasks.command import TaskArguments
from mixit_titan.tasks.options import parse, preset_run
from mixit_titan.tasks.task import task_class


def jobs(name: str, plan: Plan) -> list[Job]:
    return jobs_of(EXHIBITS[name].cells(plan))


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_the_words_of_a_training_are_the_run_that_its_process_gets(
    scale: str, tmp_path: Path
) -> None:
    """As the task's own command line reads them; the folder is a hash of the same."""
    plan = Plan(scale, tmp_path, search=False, reviews=tmp_path / "reviews.csv")
    seen = 0
    for exhibit in EXHIBITS.values():
        for job in jobs_of(exhibit.cells(plan)):
            kind, task, *words = training_words(job, plan) or [None, None]
            if kind != "task":
                continue
            assert words[-2:] == ["--out", str(job.folder)]
            default = preset_run(task, scale, words)
            args = parse(TaskArguments[task_class(task)], TaskArguments(run=default), task, words)
            assert args.run == job.arguments[0] and job.folder.name == args.run.hash
            seen += 1
    assert seen > 40


def test_a_folder_of_before_is_found_again(tmp_path: Path) -> None:
    """Names that earlier versions gave."""
    known = {
        "table1": "tasks/79a8f2f94d2b",
        "table2": "language/frozen_qk_0a92393c97ee",
        "table7": "covariance/mixit_d417f21761d4",
        "throughput": "bench/3ebe1a48cad8",
    }
    for name, folder in known.items():
        folders = {job.folder for job in jobs(name, Plan("cpu", tmp_path))}
        assert tmp_path / folder in folders


def test_exhibits_share_their_runs(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path)
    retrieval = {j.folder for j in jobs("table1", plan) if j.kind == "retrieval"}
    assert len(retrieval) == 4 and retrieval < {j.folder for j in jobs("figure2", plan)}
    assert most_pairs(Plan("paper", tmp_path)) == [2, 6, 12, 18, 24, 30]
    looked_into = jobs("figure3", plan)
    assert [job.kind for job in looked_into] == ["retrieval", "attention"]
    assert looked_into[0].folder in retrieval
    (arguments,) = looked_into[1].arguments
    assert (arguments.kind, arguments.run_dir) == ("attention", looked_into[0].folder)
    mixit = {j.folder for j in jobs("table3", plan) if j.arguments[0].settings.variant == "mixit"}
    assert len(mixit & {j.folder for j in jobs("table5", plan)}) == 2  # addition and Dyck-1
    assert len(mixit & {j.folder for j in jobs("table6", plan)}) == 1


def test_a_search_leaves_alone_what_is_asked_for(tmp_path: Path) -> None:
    places = task_grid(Plan("paper", tmp_path, seeds=2), "hop", "mixit", width=512)
    assert len(places) == 2 * 2 and all(len(seeds) == 2 for seeds in places)
    found = {(job.settings["width"], job.settings["lr"], job.settings["batch"])
             for seeds in places for job in seeds}  # fmt: skip
    assert found == {(512, lr, batch) for lr in (1e-4, 5e-4) for batch in (128, 256)}


def test_reviews_are_for_those_who_have_them(tmp_path: Path) -> None:
    without = jobs("table3", Plan("cpu", tmp_path))
    having = jobs("table3", Plan("cpu", tmp_path, reviews=tmp_path / "reviews.csv"))
    assert {j.kind for j in having} - {j.kind for j in without} == {"yelp"}
    assert EXHIBITS["table3"].note(Plan("cpu", tmp_path)).startswith("Yelp is not run")


def test_a_rehearsal_shortens_every_training(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, steps=7)
    for name in EXHIBITS:
        for job in jobs(name, plan):
            words = training_words(job, plan)
            if words is not None:
                assert "--steps=7" in words or words[words.index("--training.steps") + 1] == "7"


def test_only_the_benchmark_runs_alone_on_a_cpu(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path)
    alone = [job.kind for name in EXHIBITS for job in jobs(name, plan) if job.alone]
    assert alone == ["throughput"]

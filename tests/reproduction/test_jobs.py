"""What the exhibits ask for."""

from pathlib import Path

import pytest

from mixit_titan.reproduction.exhibit import jobs_of
from mixit_titan.reproduction.exhibits import EXHIBITS
from mixit_titan.reproduction.induction import most_pairs
from mixit_titan.reproduction.jobs import Job, Plan, task_grid
from mixit_titan.tasks.options import parse, preset_run
from mixit_titan.tasks.settings import Run
from mixit_titan.tasks.task import task_class


def jobs(name: str, plan: Plan) -> list[Job]:
    return jobs_of(EXHIBITS[name].cells(plan))


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_a_command_trains_what_its_folder_is_named_after(scale: str, tmp_path: Path) -> None:
    """The folder is a hash of the settings, here as the task's own command line reads them."""
    plan = Plan(scale, tmp_path, search=False, reviews=tmp_path / "reviews.csv")
    seen = 0
    for exhibit in EXHIBITS.values():
        for job in jobs_of(exhibit.cells(plan)):
            kind, task, *words = job.words
            if kind != "task":
                continue
            assert words[:2] == ["--preset", scale] and words[-2] == "--out"
            default = preset_run(task, scale, words[2:-2])
            run = parse(Run[task_class(task)], default, task, words[2:-2])
            assert job.folder.name == run.hash
            seen += 1
    assert seen > 40


def test_exhibits_share_their_runs(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path)
    retrieval = {j.folder for j in jobs("table1", plan) if j.words[1] == "retrieval"}
    assert len(retrieval) == 4 and retrieval < {j.folder for j in jobs("figure2", plan)}
    assert most_pairs(Plan("paper", tmp_path)) == [2, 6, 12, 18, 24, 30]
    looked_into = jobs("figure3", plan)
    assert [job.words[0] for job in looked_into] == ["task", "analyze"]
    assert looked_into[0].folder in retrieval
    assert looked_into[1].words[:3] == ("analyze", "attention", str(looked_into[0].folder))
    mixit = {j.folder for j in jobs("table3", plan) if "mixit" in j.words}
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
    assert {j.words[1] for j in having} - {j.words[1] for j in without} == {"yelp"}
    assert EXHIBITS["table3"].note(Plan("cpu", tmp_path)).startswith("Yelp is not run")


def test_a_rehearsal_shortens_every_training(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, steps=7)
    for name in EXHIBITS:
        for job in jobs(name, plan):
            if job.words[0] in ("task", "train"):
                flag = "--steps" if job.words[0] == "task" else "--training.steps"
                assert job.words[job.words.index(flag) + 1] == "7"


def test_only_the_benchmark_runs_alone_on_a_cpu(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path)
    alone = [job.words[0] for name in EXHIBITS for job in jobs(name, plan) if job.alone]
    assert alone == ["bench"]

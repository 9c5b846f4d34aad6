"""The jobs that the exhibits need."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mixit_titan.files import write_json
from mixit_titan.jobs.job import Job
from mixit_titan.reproduction.exhibit import Cell, jobs_of
from mixit_titan.reproduction.exhibits import EXHIBITS, find_exhibits
from mixit_titan.reproduction.induction import most_pairs
from mixit_titan.reproduction.jobs import (
    Plan,
    task_grid,
    task_point,
    training_words,
)
from mixit_titan.tasks.choice import FIRST_SEED
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
    plan = Plan(scale, tmp_path, seeds=1, search=False, reviews=tmp_path / "reviews.csv")
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
        "table2": "language/frozen_qk_0a92393c97ee",
    }
    for name, folder in known.items():
        folders = {job.folder for job in jobs(name, Plan("cpu", tmp_path, first_seed=0))}
        assert tmp_path / folder in folders


def test_exhibits_share_their_runs(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path, seeds=1)
    retrieval = {j.folder for j in jobs("table1", plan) if j.kind == "retrieval"}
    assert len(retrieval) == 4 and retrieval < {j.folder for j in jobs("figure2", plan)}
    assert most_pairs(Plan("paper", tmp_path)) == [2, 6, 12, 18, 24, 30]
    looked_into = jobs("figure3", plan)
    assert [job.kind for job in looked_into] == ["retrieval", "attention"]
    assert looked_into[0].folder in retrieval
    (arguments,) = looked_into[1].arguments
    assert (arguments.kind, arguments.run_dir) == ("attention", looked_into[0].folder)


def test_a_search_leaves_alone_what_is_asked_for(tmp_path: Path) -> None:
    places = task_grid(Plan("paper", tmp_path, seeds=2), "hop", "mixit", width=512)
    assert len(places) == 2 * 2 and all(len(seeds) == 1 for seeds in places)
    found = {(job.settings["width"], job.settings["lr"], job.settings["batch"])
             for seeds in places for job in seeds}  # fmt: skip
    assert found == {(512, lr, batch) for lr in (1e-4, 5e-4) for batch in (128, 256)}


def finish(job: Job, accuracy: float) -> None:
    """As if it had been run."""
    run = job.arguments[0]
    result = {"task": "hop", "variant": "mixit", "loss": 1.0, "accuracy": accuracy, "exact": 0.0}
    result |= {"trainable_params": 1, "params": 1, "steps": 1, "seconds": 1.0, "slices": {}}
    write_json(job.folder / "result.json", result | {"settings": run.described()})


def test_a_search_never_sees_what_is_reported(tmp_path: Path) -> None:
    """It has a seed of its own; when all places are done, or have failed, the best is reported with
    seeds that it never saw."""
    plan = Plan("paper", tmp_path, seeds=2)

    def places(plan: Plan) -> list[list[int]]:
        found = task_grid(plan, "hop", "mixit", width=512, batch=128)
        assert Cell(found).measured is None
        return [[job.settings["seed"] for job in seeds] for seeds in found]

    assert places(plan) == [[FIRST_SEED], [FIRST_SEED]]
    for (job,) in task_grid(plan, "hop", "mixit", width=512, batch=128):
        assert job.arguments[0].settings.held_out == "validation"
    (slow,), (quick,) = task_grid(plan, "hop", "mixit", width=512, batch=128)
    finish(quick, 0.5)
    assert places(plan) == [[FIRST_SEED], [FIRST_SEED]]
    assert places(replace(plan, failed=frozenset([slow.folder]))) == [[400, 401]]
    finish(slow, 0.9)
    assert places(plan) == [[400, 401]]
    ((first, second),) = task_grid(plan, "hop", "mixit", width=512, batch=128)
    assert first.arguments[0].settings.held_out == "test"
    assert first.settings["lr"] == slow.settings["lr"] != quick.settings["lr"]
    finish(first, 0.25)
    finish(second, 0.75)
    found = Cell(task_grid(plan, "hop", "mixit", width=512, batch=128)).measured
    assert dict(found.values) == {"400": 0.25, "401": 0.75}


@pytest.mark.parametrize(
    ("plan", "seeds"),
    [
        ({"scale": "cpu"}, {"hop": [*range(400, 408)], "retrieval": [*range(400, 405)]}),
        ({"scale": "paper"}, {"addition": [400, 401, 402], "retrieval": [400, 401, 402]}),
        ({"scale": "cpu", "seeds": 2}, {"addition": [400, 401], "retrieval": [400, 401]}),
        ({"scale": "cpu", "first_seed": 1000, "seeds": 1}, {"addition": [1000]}),
    ],
)
def test_seeds_by_what_a_run_takes(
    plan: dict[str, Any], seeds: dict[str, list[int]], tmp_path: Path
) -> None:
    for task, expected in seeds.items():
        point = task_point(Plan(out=tmp_path, **plan), task, "mixit")
        assert [job.settings["seed"] for job in point] == expected
        assert [job.arguments[0].settings.seed for job in point] == expected


@pytest.mark.parametrize(
    ("plan", "count"),
    [({"scale": "cpu"}, 5), ({"scale": "paper"}, 3), ({"scale": "cpu", "seeds": 7}, 7)],
)
def test_table_6_has_deep_models_and_fewer_seeds(
    plan: dict[str, Any], count: int, tmp_path: Path
) -> None:
    for job in jobs("table6", Plan(out=tmp_path, first_seed=90, **plan)):
        assert 90 <= job.settings["seed"] < 90 + count
    assert len(jobs("table6", Plan(out=tmp_path, **plan))) == 6 * count


def test_a_language_model_has_its_seed_everywhere(tmp_path: Path) -> None:
    """Also in its mixing matrices, which are most of what is random about it."""
    for job in jobs("table2", Plan("cpu", tmp_path, first_seed=7, seeds=2)):
        words = job.arguments[1]
        seed = str(job.settings["seed"])
        assert words[words.index("--debug.seed") + 1] == seed and seed in "78"
        if "mixit" in words:
            assert words[words.index("--model.mixing.seed") + 1] == seed


def test_language_models_are_compared_with_a_bigram_table(tmp_path: Path) -> None:
    note = EXHIBITS["table2"].note
    bits = re.search(r"bigram table has (.*) bits per byte", note(Plan("cpu", tmp_path)))
    assert 3 < float(bits[1]) < 4 and not note(Plan("paper", tmp_path))


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


def test_table_4_at_its_own_size_is_run_on_demand(tmp_path: Path) -> None:
    assert "table4_full" not in [exhibit.id for exhibit in find_exhibits([])]
    (exhibit,) = find_exhibits(["table4_full"])
    found = jobs_of(exhibit.cells(Plan("cpu", tmp_path)))
    assert len(found) == 4
    for job in found:
        settings, task = job.arguments[0].settings, job.arguments[0].task
        assert (settings.width, settings.layers, settings.heads) == (128, 2, 4)
        assert (task.keys, task.values, task.vocab) == (512, 512, 1024)
        assert settings.steps * settings.batch == 16 * 512**2


def test_only_the_benchmark_runs_alone_on_a_cpu(tmp_path: Path) -> None:
    plan = Plan("cpu", tmp_path)
    alone = [job.kind for name in EXHIBITS for job in jobs(name, plan) if job.alone]
    assert alone == ["throughput"]

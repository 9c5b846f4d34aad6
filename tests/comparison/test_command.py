import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from mixit_titan.comparison.command import CompareArguments, compare, run_compare
from mixit_titan.comparison.report import as_json, reaches
from mixit_titan.comparison.runs import find_folders
from mixit_titan.comparison.sentences import sentences
from mixit_titan.comparison.tables import tables
from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import count
from mixit_titan.model.shapes import FLAVORS
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.ledger import PARTS

Make = Callable[..., Path]


def test_who_wins_depends_on_what_is_paid_for(run: Make) -> None:
    """frozen_qk has the higher loss at each step, and takes half of the time for one."""
    a = run("a", "standard", {0: 6.0, 10: 4.0, 20: 3.0})
    b = run("b", "frozen_qk", {0: 6.0, 10: 4.1, 20: 3.1}, tokens_per_s=1000.0)
    found = as_json(compare([a, b]))
    assert (found["best"]["tokens"], found["best"]["seconds"]) == ("standard", "frozen_qk")
    standard, frozen = found["groups"]
    # After 20 s, standard is at step 10.
    assert standard["loss_at_equal"]["seconds"]["mean"] == pytest.approx(4.0)
    assert frozen["loss_at_equal"]["seconds"]["mean"] == pytest.approx(3.1)
    # frozen_qk comes to 3.1 after 20 steps, standard after 19, each step half as long.
    assert frozen["reaches"]["tokens"] == pytest.approx(20 / 19)
    assert frozen["reaches"]["seconds"] == pytest.approx(10 / 19)
    ratio = _flops("frozen_qk") / _flops("standard")
    assert standard["loss_at_equal"]["flops"]["mean"] == pytest.approx(3.0 + 2.0 * (1 - ratio))
    assert frozen["reaches"]["flops"] == pytest.approx(20 / 19 * ratio)


def _flops(variant: str) -> int:
    return count(FLAVORS["debug"], VARIANTS[variant], seq_len=128).flops_per_token


def test_seeds_are_one_group_with_an_interval(run: Make) -> None:
    losses = (2.9, 3.0, 3.1)
    folders = [
        run(f"s{n}", "standard", {0: 6.0, 10: loss}, seed=n) for n, loss in enumerate(losses)
    ]
    folders.append(run("m", "mixit", {0: 6.0, 10: 3.5}))
    standard, mixit = compare(folders).groups
    assert standard.final.values == [2.9, 3.0, 3.1]
    # Student's t for 2 degrees of freedom at 0.975 is 4.3027; the deviation is 0.1.
    half = 4.3027 * 0.1 / 3**0.5
    assert standard.final.interval == pytest.approx((3 - half, 3 + half), abs=1e-4)
    assert mixit.final.interval is None
    assert standard.mean.loss.tolist() == pytest.approx([6.0, 3.0])


def test_groups_of_one_variant_are_told_apart_by_what_differs(run: Make) -> None:
    a = run("a", "mixit", {0: 6.0, 10: 3.0}, lr=1e-3)
    b = run("b", "mixit", {0: 6.0, 10: 3.0}, lr=2e-3)
    assert [group.name for group in compare([a, b]).groups] == [
        "mixit, lr 0.001",
        "mixit, lr 0.002",
    ]


def test_a_group_is_named_after_no_more_than_it_takes(run: Make) -> None:
    losses = {0: 6.0, 10: 3.0}
    found = []
    for n in (1, 2, 3):
        found.append(run(str(n), "mixit", losses, lr=n * 1e-3))
        config = json.loads((found[-1] / "config.json").read_text())
        config["lr_scheduler"]["warmup_steps"] = 10 * n
        (found[-1] / "config.json").write_text(json.dumps(config))
    names = [group.name for group in compare(found).groups]
    assert len({*names}) == 3 and all(name.count(",") == 1 for name in names)


def test_the_best_of_several_baselines_is_the_baseline(run: Make) -> None:
    worse = run("a", "standard", {0: 6.0, 10: 3.5}, lr=1e-3)
    better = run("b", "standard", {0: 6.0, 10: 3.0}, lr=2e-3)
    mixit = run("c", "mixit", {0: 6.0, 10: 4.0})
    assert compare([worse, mixit, better]).baseline.name == "standard, lr 0.002"


def test_groups_whose_intervals_overlap_are_undecided(run: Make) -> None:
    near = {"standard": (2.9, 3.0, 3.1), "frozen_qk": (2.95, 3.05, 3.15), "mixit": (5.0, 5.1, 5.2)}
    folders = [
        run(f"{name}{n}", name, {0: 6.0, 10: loss}, seed=n)
        for name, losses in near.items()
        for n, loss in enumerate(losses)
    ]
    said = " ".join(sentences(compare(folders)))
    assert (
        "Undecided at equal tokens: the interval of standard overlaps with that of frozen_qk."
        in said
    )


def test_flops_are_those_of_what_was_trained_when(run: Make) -> None:
    """The first half of the run was that of frozen_mlp."""
    plain, thawed = (run(name, "standard", {0: 6.0, 10: 4.0, 20: 3.0}) for name in "ab")
    config = json.loads((thawed / "config.json").read_text())
    frozen = asdict(VARIANTS["frozen_mlp"])
    stacks = [(0, frozen), (10, asdict(VARIANTS["standard"]))]
    config["optimizer"]["phases"] = [{"after": n, "stack": stack} for n, stack in stacks]
    config["optimizer"]["groups"] = ["parts = 'mlp', freeze_until = 10"]
    (thawed / "config.json").write_text(json.dumps(config))
    first, second = compare([plain, thawed]).groups
    assert second.name == "standard, groups parts = 'mlp', freeze_until = 10"
    assert first.end("flops") == 20_000 * _flops("standard")
    assert second.end("flops") == 10_000 * (_flops("frozen_mlp") + _flops("standard"))


def test_a_run_from_before_there_were_stacks_is_one_of_its_variant(run: Make) -> None:
    new, old = (run(name, "frozen_qk", {0: 6.0, 10: 3.0}, seed=n) for n, name in enumerate("ab"))
    config = json.loads((old / "config.json").read_text())
    config["model_spec"]["model"]["variant"] = {"mixer": "attention", "frozen": ["qk"]}
    del config["model_spec"]["model"]["stack"]
    del config["model_spec"]["model"]["shape"]["window"]  # a key of later
    (old / "config.json").write_text(json.dumps(config))
    hybrid = run("c", "mixit*3 standard", {0: 6.0, 10: 3.0})
    groups = compare([new, old, hybrid]).groups
    assert [(g.name, len(g.runs)) for g in groups] == [("frozen_qk", 2), ("mixit*3 standard", 1)]


def test_other_tokenizers_are_compared_in_bits_per_byte(run: Make) -> None:
    a = run("a", "standard", {0: 6.0, 10: 3.0}, bits=1.4)
    b = run("b", "standard", {0: 6.0, 10: 3.0}, tokenizer="data/llama3", bits=0.4, lr=2e-3)
    found = compare([a, b])
    assert found.loss == "bits_per_byte"
    assert [group.final.mean for group in found.groups] == pytest.approx([4.2, 1.2])


def test_other_text_is_left_out_by_name(run: Make) -> None:
    a = run("a", "standard", {0: 6.0, 10: 3.0})
    b = run("b", "mixit", {0: 6.0, 10: 3.0})
    c = run("c", "random", {0: 6.0, 10: 3.0}, data="/data/other")
    found = compare([a, b, c])
    assert [group.name for group in found.groups] == ["standard", "mixit"]
    assert "validated on other text" in found.left_out[str(c)]


def test_a_curve_that_was_read_in_the_middle_of_its_schedule_is_said_to_be(run: Make) -> None:
    a = run("a", "standard", {0: 6.0, 10: 4.0, 40: 3.0})
    b = run("b", "frozen_qk", {0: 6.0, 10: 3.5})
    assert any(
        "before their last step" in s and "standard" in s for s in sentences(compare([a, b]))
    )


def test_folders_globs_and_folders_of_runs(run: Make, tmp_path: Path) -> None:
    for name in ("demo/a", "demo/b", "other"):
        run(name, "standard", {0: 6.0, 10: 3.0})
    both = [tmp_path / "demo/a", tmp_path / "demo/b"]
    assert find_folders([str(tmp_path / "demo")]) == both
    assert find_folders([str(tmp_path / "demo/*"), str(both[0])]) == both
    assert find_folders([str(tmp_path / "none")]) == [tmp_path / "none"]


def test_what_cannot_be_compared_is_named_with_the_reason(run: Make, tmp_path: Path) -> None:
    good = [run(f"g{n}", v, {0: 6.0, 10: 3.0}) for n, v in enumerate(("standard", "mixit"))]
    task = run("task", "standard", {0: 6.0, 10: 3.0})
    (task / "result.json").write_text("{}")
    broken = run("broken", "standard", {0: 6.0, 10: 3.0})
    config = json.loads((broken / "config.json").read_text()) | {"model_spec": 3}
    (broken / "config.json").write_text(json.dumps(config))
    young = run("young", "standard", {0: 6.0, 10: 3.0})
    (young / "metrics.jsonl").write_text('{"step": 0, "validation_loss": 6.0}\n')
    diverged = run("nan", "random", {0: 6.0, 10: 3.0})
    text = (diverged / "metrics.jsonl").read_text()
    (diverged / "metrics.jsonl").write_text(text.replace('"validation_loss": ', '"other": '))
    empty = run("empty", "standard", {0: 6.0, 10: 3.0})
    (empty / "metrics.jsonl").unlink()
    folders = [*good, task, broken, young, diverged, tmp_path / "none", empty]
    found = compare(folders)
    assert len(found.groups) == 2
    reasons = [found.left_out[str(folder)] for folder in folders[2:]]
    words = (
        "result.json",
        "model_spec is 3",
        "no finite loss",
        "not been validated",
        "not a directory",
    )
    words += ("has no metrics.jsonl yet",)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True))


@pytest.mark.parametrize("key", ["loss", "validation_loss", None])
def test_a_run_that_diverged_is_left_out_and_costs_the_others_nothing(
    run: Make, key: str | None
) -> None:
    """By its last lines, or by its state alone, where it ended before it logged what was NaN."""
    folders = [run(name, name, {0: 6.0, 10: 4.0, 20: 3.0}) for name in ("standard", "mixit")]
    nan = run("nan", "random", {0: 6.0, 10: 4.0, 20: 3.0})
    lines = [json.loads(line) for line in (nan / "metrics.jsonl").read_text().splitlines()]
    if key is None:
        lines = [line for line in lines if line["step"] < 15]
        (nan / "state").write_text("failed 15 the loss is not finite at step 15. Start again\n")
    for line in lines:
        if line["step"] >= 15 and key in line:
            line[key] = None
    (nan / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = compare([*folders, nan])
    since = 20 if key == "validation_loss" else 15
    assert found.left_out == {
        str(nan): f"has diverged: its loss is not finite from step {since} on"
    }
    assert found.budget("tokens") == 20_000


def test_a_batch_whose_loss_was_not_finite_is_no_divergence(run: Make) -> None:
    """It was skipped, and the run trained on."""
    folders = [run(name, name, {0: 6.0, 10: 4.0, 20: 3.0}) for name in ("standard", "mixit")]
    lines = [json.loads(line) for line in (folders[0] / "metrics.jsonl").read_text().splitlines()]
    lines[5]["loss"] = None
    (folders[0] / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert not compare(folders).left_out


def test_a_run_that_failed_is_compared_as_far_as_it_came(run: Make) -> None:
    folders = [run(name, name, {0: 6.0, 10: 4.0}) for name in ("standard", "mixit")]
    (folders[1] / "state").write_text("failed 12 the disk is full\n")
    said = f"{folders[1]} is compared up to where it ended: it failed at step 12: the disk is full"
    assert said in sentences(compare(folders))


def test_seconds_leave_out_what_a_restart_compiled(run: Make) -> None:
    """By the starts in times.jsonl: step 11 took ten times as long, as step 1 did."""
    folders = [run(name, name, {0: 6.0, 20: 3.0}) for name in ("standard", "mixit")]
    lines = [json.loads(line) for line in (folders[0] / "metrics.jsonl").read_text().splitlines()]
    next(line for line in lines if line["step"] == 11)["tokens_per_s"] /= 10
    (folders[0] / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    times = {part: 0.0 for part in ("began", "until", *PARTS)} | {"step": 20, "ended": True}
    starts = "".join(json.dumps(times | {"first": first}) + "\n" for first in (0, 10))
    (folders[0] / "times.jsonl").write_text(starts)
    assert [group.end("seconds") for group in compare(folders).groups] == pytest.approx([40, 40])


def test_the_time_of_each_run_is_known(run: Make) -> None:
    """Killed after 60 s, started again after 20 s, at step 11: 5 of 10 s of training are lost."""
    folders = [run(name, name, {0: 6.0, 20: 3.0}) for name in ("standard", "mixit")]
    spent = {"start": 30.0, "compile": 15.0, "train": 10.0, "validate": 2.0, "save": 3.0}
    lines = [
        {"began": 0.0, "until": 60.0, "first": 0, "step": 21, "ended": False, **spent},
        {"began": 80.0, "until": 140.0, "first": 11, "step": 20, "ended": True, **spent},
    ]
    (folders[0] / "times.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = compare(folders)
    known, unknown = as_json(found)["groups"]
    assert known["goodput"] == [
        {
            **{"share": 0.107, "seconds": 140.0, "start": 60.0, "compile": 30.0, "train": 15.0},
            **{"validate": 4.0, "save": 6.0, "lost": 25.0, "starts": 2},
        }
    ]
    assert unknown["goodput"] == [None]
    (said,) = [sentence for sentence in sentences(found) if "oodput" in sentence]
    assert said.startswith(f"Goodput of {folders[0]}: 10.7% of 2 min was training (start 60 s, ")


def test_a_run_with_the_same_seeds_is_no_second_sample(run: Make) -> None:
    folders = [run(name, "standard", {0: 6.0, 10: 3.0}) for name in ("a", "b")]
    folders.append(run("c", "mixit", {0: 6.0, 10: 3.5}))
    found = compare(folders)
    assert [len(group.runs) for group in found.groups] == [1, 1]
    assert "repeats " in found.left_out[str(folders[1])]


def test_runs_of_other_optimizers_are_no_seeds_of_one_group(run: Make) -> None:
    a, b = (run(name, "standard", {0: 6.0, 10: 3.0}) for name in ("a", "b"))
    text = (b / "config.json").read_text()
    (b / "config.json").write_text(text.replace('"AdamW"', '"Adam"'))
    names = [group.name for group in compare([a, b]).groups]
    assert names == ["standard, name AdamW", "standard, name Adam"]


def test_a_line_without_tokens_is_one_sentence(run: Make) -> None:
    folders = [run(name, "standard", {0: 6.0, 10: 3.0}) for name in ("a", "b")]
    text = (folders[1] / "metrics.jsonl").read_text()
    (folders[1] / "metrics.jsonl").write_text(text.replace('"tokens_per_s": 500.0', '"x": 1'))
    with pytest.raises(ConfigError, match="has no tokens or tokens/s at step 2"):
        compare(folders)


def test_one_run_is_not_enough(run: Make) -> None:
    with pytest.raises(
        ConfigError, match="only one run was found that can be compared, and a comparison needs two"
    ):
        compare([run("a", "standard", {0: 6.0, 10: 3.0})])


def test_the_command_writes_json_markdown_and_a_figure(
    run: Make, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run("runs/a", "standard", {0: 6.0, 10: 4.0, 20: 3.0})
    run("runs/b", "mixit", {0: 6.0, 10: 4.5, 20: 3.2})
    out = tmp_path / "out"
    run_compare(CompareArguments(runs=(str(tmp_path / "runs"),), out=out))
    assert (
        "mixit reaches a loss of 3.200 with 1.11 times standard's tokens" in capsys.readouterr().out
    )
    found = json.loads((out / "compare.json").read_text())
    assert [group["name"] for group in found["groups"]] == ["standard", "mixit"]
    assert found["groups"][0]["loss_at_equal"]["tokens"]["mean"] == pytest.approx(3.0)
    assert (out / "compare.md").read_text().startswith("## Validation loss")
    assert (out / "compare.png").stat().st_size > 10_000


def test_the_share_of_the_budget_is_that_of_the_lowest_common_loss(run: Make) -> None:
    a = run("a", "standard", {0: 6.0, 6: 5.5, 10: 3.5})
    b = run("b", "mixit", {0: 6.0, 10: 5.0})
    standard, mixit = compare([a, b]).groups
    found = reaches(mixit, standard)
    assert found["loss"] == 5.0
    assert found["tokens"] == pytest.approx(10 / 7)


def test_the_table_names_what_is_best_for_what_is_paid(run: Make) -> None:
    """The losses of the first test of this file: standard per token, frozen_qk per second."""
    a = run("a", "standard", {0: 6.0, 10: 4.0, 20: 3.0})
    b = run("b", "frozen_qk", {0: 6.0, 10: 4.1, 20: 3.1}, tokens_per_s=1000.0)
    (_, header, rows), (_, _, spent) = tables(compare([a, b]))
    assert header[:5] == ["", "runs", "equal tokens", "equal FLOPs", "equal seconds"]
    budget, standard, frozen, best = rows
    assert (budget[2], budget[4]) == ("20,000 tokens", "20 seconds")
    assert (standard[2], standard[4]) == ("3.000 *", "4.000")
    assert (frozen[2], frozen[4]) == ("3.100", "3.100 *")
    assert (best[2], best[4]) == ("standard", "frozen_qk")
    trained = f"{count(FLAVORS['debug'], VARIANTS['standard'], seq_len=128).trainable:,}"
    flops = f"{20_000 * _flops('standard'):.2e}"
    assert spent[0] == ["standard", "20", "20,000", "-", flops, "40", trained]


def test_seeds_are_shown_with_half_of_their_interval(run: Make) -> None:
    folders = [run(f"s{n}", "standard", {0: 6.0, 10: 3.0 + n}, seed=n) for n in range(2)]
    ((_, _, rows), *_) = tables(compare(folders))
    # Student's t for one degree of freedom is 12.706; the deviation of 3 and 4 is sqrt(1/2).
    assert rows[1][2] == f"3.500 ± {12.706 / 2:.3f} *"


def test_where_curves_cross_is_shown_for_the_last_time(run: Make) -> None:
    """After step 2 mixit falls below standard, at step 15 standard is below again."""
    a = run("a", "standard", {0: 6.0, 2: 5.5, 10: 4.5, 20: 3.0})
    b = run("b", "mixit", {0: 6.5, 2: 6.0, 10: 4.0, 20: 3.5})
    comparison = compare([a, b])
    lower = [x["lower_after"] for x in as_json(comparison)["crossings"] if x["axis"] == "tokens"]
    assert lower == ["mixit", "standard"]
    *_, (title, _, rows) = tables(comparison)
    assert "cross" in title
    assert rows[0][:3] == ["standard", "mixit", "15,000 (3.750)"]


def test_a_loss_between_two_validations_that_are_far_apart_is_said_to_be_too_high(
    run: Make,
) -> None:
    a = run("a", "standard", {0: 6.0, 10: 5.0, 40: 3.0})
    b = run("b", "frozen_qk", {0: 6.0, 20: 3.5})
    (said,) = [each for each in sentences(compare([a, b])) if "overestimates the loss" in each]
    assert ": standard." in said


def test_a_budget_before_the_first_validation_is_a_dash_with_a_reason(run: Make) -> None:
    a = run("a", "standard", {0: 6.0, 40: 3.0})
    b = run("b", "frozen_qk", {0: 6.0, 20: 3.5})
    comparison = compare([a, b])
    (at_equal, *_) = tables(comparison)
    standard = next(row for row in at_equal[2] if row[0] == "standard")
    assert standard[2:5] == ["-", "-", "-"]
    said = [each for each in sentences(comparison) if "standard" in each]
    assert len(said) == 1 and said[0].startswith("Not known where there is a dash")


def test_runs_in_progress_are_named_with_their_step(run: Make) -> None:
    folders = [run(name, name, {0: 6.0, 10: 4.0}) for name in ("standard", "mixit")]
    (folders[1] / "state").write_text("running 12\n")
    said = f"Unfinished, and compared up to the latest step: {folders[1]} (step 10)."
    assert said in sentences(compare(folders))

"""`mixit-titan bench` as a user types it, in this process."""

import itertools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from mixit_titan.bench.compare import read_ratios
from mixit_titan.cli import main
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.config.shipped_estimates import shipped_estimate
from mixit_titan.errors import ConfigError
from mixit_titan.jobs.job import Job
from tests.bench.conftest import TINY


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "bench", *arguments])
    main()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench")
    # The environment of a rank stays: not that of the tests.
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ):
        variants = ["--variants", "mixit,plain", "frozen_mlp", "--profile"]
        call(patch, *TINY.split(), *variants, "--out", str(out))
    return out


def test_a_point_leaves_numbers_and_a_figure(measured: Path) -> None:
    found = json.loads((measured / "bench.json").read_text())
    rows = {row["variant"]: row for row in found["variants"]}
    assert list(rows) == ["standard", "mixit", "plain", "frozen_mlp"]
    for row in rows.values():
        step = sum(row["phase_seconds"].values())
        assert step > 0 and len(row["round_seconds"]) == 8
        assert row["tokens_per_s"] == pytest.approx(2 * 16 / row["step_seconds"])
        assert row["samples_per_s"] == pytest.approx(2 / row["step_seconds"])
        low, high = row["tokens_per_s_quartiles"]
        assert low <= row["tokens_per_s"] <= high
        standard = rows["standard"]["tokens_per_s"]
        assert row["ratio"] == pytest.approx(row["tokens_per_s"] / standard)
        assert row["share_of_limit"] == pytest.approx(row["ratio"] / row["limit"])
        assert row["peak_memory_bytes"] > row["peak_memory_one_batch_bytes"] > 0
        assert row["mfu"] is None  # nobody knows the peak of a CPU
    assert found["standard_to_plain"]["ratio"] == pytest.approx(1 / rows["plain"]["ratio"])
    assert {"torch", "device", "threads", "commit"} <= found["environment"].keys()
    assert found["measured"] and found["interleaved"]
    settings = found["settings"]
    assert settings["shape"]["width"] == 32 and settings["ranks"] == 1
    path = {key: settings[key] for key in ("attention", "form", "graphs", "documents", "chunks")}
    assert list(path.values()) == ["sdpa", "stored", False, False, 1]
    assert (measured / "bench.png").read_bytes()[1:4] == b"PNG"


GPU_CONFIGS = [n for n, file in shipped_configs().items() if "H100s" in file.read_text()]
GPU_CONFIGS += ["paper_fineweb_edu", "paper_wikitext103"]


@pytest.mark.parametrize("name", GPU_CONFIGS)
def test_a_config_for_gpus_is_modeled_without_one(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The figures are those of `params`, and say that nothing was measured."""
    monkeypatch.setenv("COLUMNS", "300")
    file = str(shipped_configs()[name])
    call(monkeypatch, file, "--variants", "mixit", "--out", str(tmp_path))
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "modeled.json").read_text())
    assert found["modeled"] and not found["measured"] and not (tmp_path / "bench.json").exists()
    (point,) = found["points"]
    standard, mixit = point["variants"]
    assert (standard["variant"], mixit["variant"]) == ("standard", "mixit")
    ranks = 64 if name.startswith("8b") else 8
    same = shipped_estimate(name, "mixit", ranks=ranks, gpu="H100")
    assert mixit["tokens_per_s"] == same.tokens_per_s and mixit["fits"] and mixit["modeled"]
    assert mixit["ratio"] == mixit["tokens_per_s"] / standard["tokens_per_s"]
    assert f"Modeled, not measured: {ranks} x H100, width" in said and "Measured" not in said
    assert f"{same.tokens_per_s:,.0f}" in said
    assert "nothing was measured" in said and "--device cpu" in said


def test_what_is_modeled_can_be_scanned_and_has_no_plain_llama(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = [str(shipped_configs()["160m_fineweb_edu"]), "--nproc", "2", "--out", str(tmp_path)]
    call(monkeypatch, *words, "--batch", "8,16", "--variants", "mixit*6 standard*6")
    points = json.loads((tmp_path / "modeled.json").read_text())["points"]
    assert [point["settings"]["batch"] for point in points] == [8, 16]
    assert {point["settings"]["ranks"] for point in points} == {2}
    with pytest.raises(SystemExit):
        call(monkeypatch, *words, "--variants", "plain")
    assert "the plain Llama can be measured but not modeled" in capsys.readouterr().err


def test_a_profile_names_the_most_expensive_operators(measured: Path) -> None:
    for variant in ("standard", "mixit", "plain", "frozen_mlp"):
        operators = json.loads((measured / "profile" / f"{variant}.json").read_text())
        assert "aten::mm" in {entry["operator"] for entry in operators}
        assert sum(entry["share"] for entry in operators) <= 1
        trace = json.loads((measured / "profile" / f"{variant}.trace.json").read_text())
        assert trace["traceEvents"]


def test_compare_exits_with_1_on_a_regression(
    measured: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    before = measured / "bench.json"
    found = json.loads(before.read_text())
    for row in found["variants"]:
        if row["variant"] == "mixit":  # a fifth slower
            row["ratio"] /= 1.2
            row["tokens_per_s"] /= 1.2
    after = tmp_path / "after.json"
    after.write_text(json.dumps(found))
    arguments = ["--out", str(tmp_path), "--compare"]
    call(monkeypatch, *arguments, str(before), str(before))
    call(monkeypatch, *arguments, str(before), str(after), "--tolerance", "17")
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, *arguments, str(before), str(after))
    assert exit_.value.code == 1
    assert "slower by more than 5%: mixit" in " ".join(capsys.readouterr().out.split())
    rows = json.loads((tmp_path / "compare.json").read_text())
    assert {row["variant"]: row["regression"] for row in rows} == {
        "mixit": True,
        "frozen_mlp": False,
        "standard / plain": False,
    }
    left_out = found["variants"].pop()
    after.write_text(json.dumps(found))
    call(monkeypatch, *arguments, str(before), str(after), "--tolerance", "17")
    printed = " ".join(capsys.readouterr().out.split())
    assert f"not compared, only in {before}: {left_out['variant']} (" in printed
    assert f"only in {after}" not in printed
    next(row for row in found["variants"] if row["variant"] == "mixit")["ratio"] = 0
    after.write_text(json.dumps(found))
    with pytest.raises(ConfigError, match=r"after\.json cannot be used \(a ratio is not above 0\)"):
        read_ratios(after)


def test_a_file_of_the_first_version_can_be_compared(
    measured: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """It says nothing of what it did not have."""
    found = json.loads((measured / "bench.json").read_text())
    old = {key: found[key] for key in ("environment", "variants")}
    kept = ("shape", "batch", "dtype", "compile", "ac", "frozen", "rounds", "ranks")
    old["settings"] = {key: found["settings"][key] for key in kept}
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(old))
    arguments = ["--out", str(tmp_path), "--compare", str(before)]
    call(monkeypatch, *arguments, str(measured / "bench.json"))
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{before} is from an earlier version, which timed a loop of its own" in printed
    assert len(json.loads((tmp_path / "compare.json").read_text())) == 2
    found["settings"]["documents"] = True
    after.write_text(json.dumps(found))
    with pytest.raises(SystemExit):
        call(monkeypatch, *arguments, str(after))
    assert "share no variant at the same settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "--variants mixti": "did you mean 'mixit'",
        "--flavor 9b": "unknown model.flavor '9b'",
        "--seq-len 16,x": "--seq-len is '16,x': it must be a number",
        "--batch 0": "--batch is 0: it must be at least 1",
        "--batch 1000000": "a batch of 1000000 sequences of 128 tokens does not fit",
        "--width 30": "model.heads = 4 does not divide model.width = 30",
        "--compile of": "did you mean 'off'",
        "--ac some": "unknown --ac 'some'",
        "--graphs on,off": "--graphs on needs an NVIDIA GPU, which this machine lacks",
        "--chunks 3": "loss.num_chunks = 3 does not divide training.seq_len = 128",
        "--variants plain --documents on": "the plain Llama cannot separate documents",
        "--frozen residents": "did you mean 'resident'",
        "--model.widht 3": "did you mean 'model.width'",
        "no.toml": "there is no config file 'no.toml'",
        "--dtype int8": "unknown --dtype 'int8'",
        "--rounds 3": "--rounds is 3",
        "--nproc 2 --variants plain": "the plain Llama supports one rank only",
        "--limits X9000": "--limits names 'X9000'",
        "--limits A1000": "--limits names 'A1000'",
        "--compare no.json no.json": "there is no file 'no.json' to compare",
        "--compare BROKEN BROKEN": "it is not JSON",
        "--compare OTHER OTHER": "there is no ",
    }.items(),
)
def test_a_mistake_ends_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    arguments: str,
    message: str,
) -> None:
    (tmp_path / "broken.json").write_text('{"settings": ')
    (tmp_path / "other.json").write_text('{"variants": [1]}')
    for word in ("BROKEN", "OTHER"):
        arguments = arguments.replace(word, str(tmp_path / f"{word.lower()}.json"))
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, *arguments.split(), "--out", str(tmp_path))
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.usefixtures("job_server")
def test_a_scan_is_a_process_per_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """One fails, for which there is no memory: the other is kept, and the sentence is shown."""
    tiny = TINY.replace("--seq-len 16", "--seq-len 512").split()
    arguments = [*tiny, "--variants", "mixit", "--out", str(tmp_path), "--batch"]
    with pytest.raises(SystemExit) as exit_:
        call(monkeypatch, *arguments, "1000000,2")
    assert exit_.value.code == 1
    assert "a batch of 1000000 sequences of 512 tokens does not fit" in capsys.readouterr().err
    (measured,) = tmp_path.glob("points/*/bench.json")
    assert measured.parent.name == "batch-2" and not (tmp_path / "bench.json").exists()
    before = measured.stat().st_mtime_ns
    monkeypatch.setattr("mixit_titan.jobs.process.start", in_this_process)
    call(monkeypatch, *arguments, "2,3")
    printed = capsys.readouterr()
    assert "2 jobs, 1 of them done before" in printed.err and "batch 2" in printed.out
    assert measured.stat().st_mtime_ns == before
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [p["settings"]["batch"] for p in found["points"]] == [2, 3]
    assert [p["settings"]["shape"]["hidden"] for p in found["points"]] == [64, 64]
    assert (tmp_path / "bench.png").stat().st_size > 0


def test_a_scan_on_many_ranks_gives_each_the_words_of_one_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rank is a command: here it is not run, but answered."""
    commands = []

    def answer(nproc: int, words: list[str], run_rank: object) -> int:
        assert nproc == 2 and words[0] == "bench"
        named = dict(itertools.pairwise(words))
        commands.append([named[key] for key in ("--seq-len", "--compile", "--hidden", "--out")])
        return 0

    monkeypatch.setattr("mixit_titan.bench.command.launch", answer)
    monkeypatch.setattr("mixit_titan.jobs.process.start", in_this_process)
    arguments = [*TINY.replace("16", "8,16").split(), "--compile", "off,on", "--nproc", "2"]
    with pytest.raises(SystemExit):  # nothing is measured
        call(monkeypatch, *arguments, "--out", str(tmp_path))
    assert commands == [
        [m, c, "64", str(tmp_path / "points" / f"seq_len-{m}_compile-{c}")]
        for m in ("8", "16")
        for c in ("off", "on")
    ]


def test_ranks_that_fail_end_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mixit_titan.bench.command.launch", lambda *_: 7)
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *TINY.split(), "--nproc", "2", "--out", str(tmp_path))
    assert ended.value.code == 7


def in_this_process(job: Job, share: int) -> SimpleNamespace:
    job.work(*job.arguments)
    return SimpleNamespace(is_alive=lambda: False, exitcode=0)

"""lm-eval over a checkpoint, against the harness's own `hf` model on the exported folder."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from mixit_titan.cli import main
from mixit_titan.evaluation.likelihood import ALONE, Share
from mixit_titan.evaluation.tasks import evaluate_tasks, load_tasks
from mixit_titan.export.command import ExportArguments, run_export
from mixit_titan.runtime.trained import load_trained
from tests.evaluation.local_tasks import CONTEXTS, PROMPTS
from tests.runtime.conftest import Runs

pytest.importorskip("lm_eval", reason="lm-eval (the extra `eval`) is not installed")

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from lm_eval.api.task import Task

    from mixit_titan.evaluation.harness import TrainedModel

EXPORTED = {
    "standard": "standard",
    "frozen_qk": "frozen_qk",
    "mixit": "mixit",
    "exported_hybrid": "mixit standard",
}
"""Run -> its stack. Those that the session has not trained are trained here."""


@pytest.fixture(scope="module", params=EXPORTED)
def run(request: pytest.FixtureRequest, runs: Runs) -> Path:
    if not runs.folder(request.param).exists():
        runs.train(1, {request.param: (EXPORTED[request.param], [])})
    return runs.folder(request.param)


@pytest.fixture(scope="module")
def ours(run: Path) -> "TrainedModel":
    from mixit_titan.evaluation.harness import TrainedModel

    return TrainedModel(load_trained(run), rows=3)


@pytest.fixture(scope="module")
def theirs(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["LM"]:
    pytest.importorskip("accelerate", reason="the harness's own model needs accelerate")
    folder = tmp_path_factory.mktemp("exported")
    run_export(ExportArguments(run_dir=run, out=folder / "model"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("HF_MODULES_CACHE", str(folder / "modules"))
        import transformers.dynamic_module_utils as modules

        monkeypatch.setattr(modules, "HF_MODULES_CACHE", str(folder / "modules"))
        from lm_eval.models.huggingface import HFLM

        yield HFLM(
            pretrained=str(folder / "model"),
            device="cpu",
            dtype="float32",
            batch_size=2,
            trust_remote_code=True,
        )


def task(tasks: Path, name: str) -> "Task":
    return next(t for t in load_tasks((str(tasks),)) if t.task_name == f"local_{name}")


def requests(tasks: Path, name: str) -> list[Any]:
    found = task(tasks, name)
    found.set_config(key="num_fewshot", value=0)
    found.build_all_requests(rank=0, world_size=1)
    return found.instances


@pytest.mark.parametrize("name", ["choice", "cloze"])
def test_loglikelihoods_are_those_of_the_exported_folder(
    ours: "TrainedModel", theirs: "LM", tasks: Path, name: str
) -> None:
    asked = requests(tasks, name)
    assert len(asked) == len(CONTEXTS) * (3 if name == "choice" else 1)
    assert max(len(ours.tok_encode("".join(r.args))) for r in asked) > ours.max_length
    found, expected = ours.loglikelihood(asked), theirs.loglikelihood(asked)
    assert [x for x, _ in found] == pytest.approx([x for x, _ in expected], abs=1e-4)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


def test_rolling_loglikelihoods_too(ours: "TrainedModel", theirs: "LM", tasks: Path) -> None:
    asked = requests(tasks, "rolling")
    expected = theirs.loglikelihood_rolling(asked)
    assert ours.loglikelihood_rolling(asked) == pytest.approx(expected, abs=1e-4)


def test_results_are_those_of_the_exported_folder(
    ours: "TrainedModel", theirs: "LM", tasks: Path
) -> None:
    both = [task(tasks, "choice"), task(tasks, "cloze")]
    found, expected = (evaluate_tasks(lm, both, limit=4, errors=False) for lm in (ours, theirs))
    assert found["local_choice"]["examples"] == 4
    for name in ("local_choice", "local_cloze"):
        assert found[name]["metrics"] == pytest.approx(expected[name]["metrics"], rel=1e-4)


def test_greedy_text_is_that_of_generate(
    run: Path,
    ours: "TrainedModel",
    tasks: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    asked = requests(tasks, "written")
    assert [request.args[0] for request in asked] == PROMPTS
    texts = ours.generate_until(asked)
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    options = ["--prompts", str(tmp_path / "prompts.txt"), "--tokens", "8", "--temperature", "0"]
    monkeypatch.setattr("sys.argv", ["mixit-titan", "generate", str(run), *options])
    main()
    rows = zip(PROMPTS, texts, strict=True)
    shown = [f"== {n} ==\n{prompt}{text}\n" for n, (prompt, text) in enumerate(rows, 1)]
    assert capsys.readouterr().out == "".join(shown)


def test_ranks_share_what_is_to_be_written(run: Path, tasks: Path) -> None:
    """Each rank by itself: what it has not written is empty."""
    from mixit_titan.evaluation.harness import TrainedModel

    asked, trained = requests(tasks, "written"), load_trained(run)
    alone, *ranks = (
        TrainedModel(trained, share=share, rows=2).generate_until(asked)
        for share in (ALONE, Share(0, 2), Share(1, 2))
    )
    assert [first + second for first, second in zip(*ranks, strict=True)] == alone
    written = [sum(map(bool, texts)) for texts in ranks]
    assert written[1] == 2 and sum(written) == sum(map(bool, alone)) == len(PROMPTS)


def test_text_ends_before_the_first_end_of_the_task(ours: "TrainedModel") -> None:
    from lm_eval.api.instance import Instance

    def written(until: list[str]) -> str:
        arguments = ("def main(", {"until": until, "max_gen_toks": 12})
        return ours.generate_until([Instance("generate_until", {}, arguments, 0)])[0]

    whole = written([])
    assert whole
    for end in {whole[0], whole[-1], whole}:
        assert written(["never written", end]) == whole[: whole.index(end)]


def test_a_long_context_loses_its_beginning(ours: "TrainedModel") -> None:
    from lm_eval.api.instance import Instance

    def score(context: str) -> float:
        return ours.loglikelihood([Instance("loglikelihood", {}, (context, " x"), 0)])[0][0]

    longest = "y" * (ours.max_length - 1)
    assert score("zzz" + longest) == score(longest)
    assert score(longest[1:]) != score(longest)


def test_the_name_is_registered_and_loads_a_step(run: Path) -> None:
    from lm_eval.api.registry import get_model

    import mixit_titan.evaluation.hook  # noqa: F401

    model = get_model("mixit_titan").create_from_arg_string(
        f"run={run},step=20", {"batch_size": 4, "max_batch_size": None, "device": None}
    )
    assert model.get_model_info()["model_step"] == 20
    assert model.max_length == 32


def test_the_harness_finds_it_only_in_its_own_command() -> None:
    """The line that Python reads when it starts, as it stands beside the package."""
    line = (Path(__file__).parents[2] / "mixit_titan_lm_eval.pth").read_text()
    for words, expected in {
        ("python", "/x/bin/lm_eval", "--model", "hf"): 1,
        ("python", "-m", "lm_eval"): 1,
        ("python", "train.py", "lm_evaluation"): 0,
        ("python", "-c", "import lm_eval"): 0,
    }.items():
        with (
            mock.patch.object(sys, "orig_argv", list(words)),
            mock.patch("builtins.__import__", wraps=__import__) as imported,
        ):
            exec(line)
        hooks = [c for c in imported.call_args_list if c.args[0] == "mixit_titan.evaluation.hook"]
        assert len(hooks) == expected, words


@pytest.mark.slow
def test_the_harness_runs_it_by_its_own_command(runs: Runs, tasks: Path, tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("lm_eval")
    words = ["--model", "mixit_titan", "--model_args", f"run={runs.folder('mixit')}"]
    words += ["--include_path", str(tasks), "--tasks", "local_choice"]
    done = subprocess.run(
        [command, *words, "--output_path", str(tmp_path / "out")],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (file,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(file.read_text())
    assert results["config"]["model"] == "mixit_titan"
    from mixit_titan.evaluation.harness import TrainedModel

    model = TrainedModel(load_trained(runs.folder("mixit")))
    ours = evaluate_tasks(model, [task(tasks, "choice")], limit=None)
    expected = ours["local_choice"]["metrics"]["acc"]
    assert results["results"]["local_choice"]["acc,none"] == expected

"""The loss on a text, against one forward pass for each token."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from mixit_titan.cli import main
from mixit_titan.evaluation.text import windows
from mixit_titan.runtime.trained import Trained, load_trained
from tests.evaluation.worker import evaluate
from tests.forkserver import Forkserver
from tests.runtime.conftest import Runs

CONTEXT = 32  # of the runs
DOCUMENTS = ["if x:\n    return 1\n", "def f(a, b, c, d): return a + b + c + d + a + b + c", "élan"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    return file


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "eval", *map(str, arguments)])
    main()


def found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, *arguments: object
) -> dict:
    call(monkeypatch, *arguments, "--json")
    return json.loads(capsys.readouterr().out)


def nats(trained: Trained, before: list[int], token: int) -> float:
    """From a prefix by itself, in NumPy's float64 after the logits."""
    logits = trained.model(torch.tensor([before]))[0, -1].double().numpy()
    return float(np.logaddexp.reduce(logits) - logits[token])


def expected(trained: Trained, *, context: int, stride: int) -> dict[int, list[float]]:
    """Tokens before each -> the losses, by a definition that knows no windows' ends: the first
    window that reaches a token scores it."""
    losses: dict[int, list[float]] = {}
    for document in DOCUMENTS:
        tokens = [*document.encode(), 256]
        for place in range(1, len(tokens)):
            first = max(0, math.ceil((place - context) / stride)) * stride
            before = tokens[first:place]
            losses.setdefault(len(before), []).append(nats(trained, before, tokens[place]))
    return losses


@pytest.mark.parametrize("variant", ["standard", "mixit"])
@pytest.mark.parametrize(("context", "stride"), [(CONTEXT, CONTEXT), (CONTEXT, 5), (7, 3)])
def test_every_token_is_scored_once_with_its_context(
    runs: Runs,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    variant: str,
    context: int,
    stride: int,
) -> None:
    folder = runs.folder(variant)
    options = ["--text", text, "--context", context, "--stride", stride, "--out", text.parent]
    result = found(monkeypatch, capsys, folder, *options)
    losses = expected(load_trained(folder), context=context, stride=stride)
    every = [loss for each in losses.values() for loss in each]
    assert result["tokens"] == len(every) == sum(len(d.encode()) for d in DOCUMENTS)
    assert result["loss"] == pytest.approx(np.mean(every), rel=1e-6)
    assert result["perplexity"] == pytest.approx(np.exp(np.mean(every)), rel=1e-5)
    size = sum(len(document.encode()) - 1 for document in DOCUMENTS)  # but each first byte
    assert result["bytes"] == size
    assert result["bits_per_byte"] == pytest.approx(sum(every) / np.log(2) / size, rel=1e-6)
    for row in result["positions"]:
        inside = [x for n in range(row["first"], row["last"] + 1) for x in losses.get(n, [])]
        assert row["tokens"] == len(inside)
        assert row["loss"] == pytest.approx(np.mean(inside), rel=1e-6)
    assert sum(row["tokens"] for row in result["positions"]) == len(every)


def test_the_example_of_windows() -> None:
    cut = list(windows(np.arange(7), context=4, stride=2))
    assert [list(window.tokens) for window in cut] == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]]
    assert [window.scored for window in cut] == [4, 2]


def test_a_prepared_folder_is_its_documents(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    lines = (runs.data / "validation-00000.tokens").read_bytes()
    texts = np.frombuffer(lines, "<u2").tolist()
    file = tmp_path / "lines.jsonl"
    with file.open("w") as out:
        document: list[int] = []
        for token in texts:
            if token == 256:
                out.write(json.dumps({"text": bytes(document).decode()}) + "\n")
                document = []
            else:
                document.append(token)
    folder, out = runs.folder("standard"), ["--out", tmp_path]
    prepared = found(monkeypatch, capsys, folder, "--text", runs.data, *out)
    plain = found(monkeypatch, capsys, folder, "--text", file, *out)
    assert prepared["documents"] == plain["documents"] == 100
    for figure in ("loss", "tokens", "bytes", "bits_per_byte", "positions"):
        assert prepared[figure] == plain[figure]


def test_ranks_do_not_change_a_digit(runs: Runs, tmp_path: Path, forkserver: Forkserver) -> None:
    for ranks in (1, 2):
        words = [
            str(runs.folder("mixit")),
            "--text",
            str(runs.data),
            "--out",
            f"{tmp_path}/{ranks}",
        ]
        forkserver.run_ranks(ranks, 1, evaluate, words)
    one, two = (
        (tmp_path / str(ranks) / "step-20" / "text-runs-data.json").read_text() for ranks in (1, 2)
    )
    assert one == two
    assert json.loads(one)["tokens"] > 1000


def test_ranks_are_started_with_the_same_words(
    runs: Runs, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    launch = "mixit_titan.evaluation.command.launch"
    monkeypatch.setattr(launch, lambda ranks, words, run: started.append((ranks, words)) or 0)
    folder = str(runs.folder("mixit"))
    for asked in (["--nproc", "3"], ["--nproc=3"]):
        with pytest.raises(SystemExit) as ended:
            call(monkeypatch, folder, *asked, "--text", text, "--limit", "2")
        assert ended.value.code == 0
    assert started == [(3, ["eval", folder, "--text", str(text), "--limit", "2"])] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    {
        "": "either --tasks or --text",
        "--text TEXT --tasks arc_easy": "either --tasks or --text",
        "--text nowhere.txt": "--text 'nowhere.txt' does not exist",
        "--text TEXT --context 33": "--context is 33, longer than the model's 32",
        "--text TEXT --stride 40": "--stride is 40: it must be at most the context, 32",
        "--text TEXT --split train": "--split is for prepared folders",
        "--text DATA --split trian": "did you mean 'train'",
        "--text EMPTY": "has no text",
        "--text TEXT --step 7": "no checkpoint of step 7",
        "--tasks x --context 4": "--context is for --text",
        "--tasks ,": "--tasks is empty",
    }.items(),
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    runs: Runs,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    options: str,
    message: str,
) -> None:
    (tmp_path / "empty.txt").write_text("")
    places = {"TEXT": text, "DATA": runs.data, "EMPTY": tmp_path / "empty.txt"}
    words = [places.get(word, word) for word in options.split()]
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, runs.folder("standard"), *words, "--out", tmp_path / "out")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said and len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_another_tokenizers_shards_are_refused(
    uncommon_runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit):
        call(monkeypatch, uncommon_runs.folder("llama"), "--text", uncommon_runs.data)
    assert "was prepared with another tokenizer (bytes)" in capsys.readouterr().err


def test_the_table_ends_with_what_to_type_next(
    runs: Runs, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    call(monkeypatch, runs.folder("mixit"), "--text", text, "--out", text.parent, "--limit", 2)
    said = capsys.readouterr().out
    assert "bits per byte" in said and "mixit-titan analyze timeline" in said
    file = text.parent / "step-20" / f"text-{text.parent.name}-text.jsonl-limit-2.json"
    assert f"wrote {file}" in said
    assert json.loads(file.read_text())["documents"] == 2


def test_evaluations_that_differ_are_all_kept(
    runs: Runs, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(text.parent)
    (text.parent / "other").mkdir()
    (text.parent / "other" / text.name).write_text(text.read_text())
    plain = "text-text.jsonl"
    asked = {
        plain: [],
        f"{plain}-context-7": ["--context", 7],
        f"{plain}-context-7-stride-3": ["--context", 7, "--stride", 3],
        f"{plain}-stride-5": ["--stride", 5],
        f"{plain}-limit-2": ["--limit", 2],
    }
    folder, expected = runs.folder("mixit"), {}
    for name, options in asked.items():
        words = ["--text", text.name, "--out", "out", *options]
        expected[name] = found(monkeypatch, capsys, folder, *words)
    # What the defaults are, said or not, is the same evaluation.
    words = ["--context", CONTEXT, "--stride", CONTEXT]
    again = found(monkeypatch, capsys, folder, "--text", text.name, "--out", "out", *words)
    assert again == expected[plain]
    other = f"other/{text.name}"
    expected["text-other-text.jsonl"] = found(
        monkeypatch, capsys, folder, "--text", other, "--out", "out"
    )
    written = (text.parent / "out" / "step-20").glob("*.json")
    assert {file.stem: json.loads(file.read_text()) for file in written} == expected

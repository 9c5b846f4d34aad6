"""Text from trained models: with and without a cache, alone and side by side."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from mixit_titan.cli import main
from mixit_titan.generation.generate import generate
from mixit_titan.generation.sampling import Sampling
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.trained import Trained, load_trained
from tests.runtime.conftest import Runs

UNCOMMON = ["llama", "mixit_official"]
VOCABULARY, COUNT = 257, 20
PROMPTS = [list(b"def main("), list(b"if"), list(b"the"), list(b"return x")]
GREEDY = Sampling(temperature=0, top_p=1, seed=0)
RANDOM = Sampling(temperature=0.9, top_p=0.95, seed=3)


@pytest.fixture(params=[*VARIANTS, *UNCOMMON])
def trained(request: pytest.FixtureRequest) -> Trained:
    fixture = "uncommon_runs" if request.param in UNCOMMON else "runs"
    return load_trained(request.getfixturevalue(fixture).folder(request.param))


def tokens(
    trained: Trained,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    sampling: Sampling = GREEDY,
    end_of_text: int | None = None,
    cache: bool = True,
) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in prompts]
    ended = []
    for row, token in generate(
        trained.model,
        prompts,
        count=COUNT,
        sampling=sampling,
        vocabulary=VOCABULARY,
        end_of_text=end_of_text,
        cache=cache,
    ):
        if token is None:
            ended.append(row)
        else:
            assert row not in ended
            rows[row].append(token)
    assert sorted(ended) == list(range(len(prompts)))
    return rows


def most_likely(trained: Trained, prompt: Sequence[int]) -> list[int]:
    """One prompt, nothing kept, no batch."""
    sequence = list(prompt)
    for _ in range(COUNT):
        logits = trained.model(torch.tensor([sequence]))[0, -1].tolist()
        sequence.append(max(range(VOCABULARY), key=logits.__getitem__))
    return sequence[len(prompt) :]


def test_at_temperature_0_it_takes_the_most_likely_token(trained: Trained) -> None:
    expected = [most_likely(trained, prompt) for prompt in PROMPTS]
    assert tokens(trained) == expected
    assert tokens(trained, cache=False) == expected


def test_the_cache_changes_no_token(trained: Trained) -> None:
    cached = tokens(trained, sampling=RANDOM)
    assert [len(row) for row in cached] == [COUNT] * len(PROMPTS)
    assert len({tuple(row) for row in cached}) == len(PROMPTS)
    assert tokens(trained, sampling=RANDOM, cache=False) == cached


def test_a_row_does_not_depend_on_those_beside_it(runs: Runs) -> None:
    for variant in ("standard", "mixit"):
        trained = load_trained(runs.folder(variant))
        alone = tokens(trained, PROMPTS[:1], RANDOM)
        assert alone[0] == tokens(trained, sampling=RANDOM)[0]
        assert alone != tokens(trained, PROMPTS[:1], Sampling(temperature=0.9, top_p=1, seed=4))


def test_it_stops_at_the_end_of_a_text(runs: Runs) -> None:
    trained = load_trained(runs.folder("mixit"))
    rows = tokens(trained, sampling=RANDOM)
    end = rows[1][5]
    expected = [row[: row.index(end)] if end in row else row for row in rows]
    assert tokens(trained, sampling=RANDOM, end_of_text=end) == expected


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["mixit-titan", "generate", *arguments])
    main()


def test_the_command_prints_prompt_and_text(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    run = str(runs.folder("mixit"))
    call(monkeypatch, run, "--prompt", "ask é", "--tokens", "8", "--seed", "1")
    alone = capsys.readouterr().out
    assert alone.startswith("ask é") and len(alone) > len("ask é\n")
    file = tmp_path / "prompts.txt"
    file.write_text("ask é\n\nx\n")
    call(monkeypatch, run, "--prompts", str(file), "--tokens", "8", "--seed", "1", "--no-cache")
    several = capsys.readouterr().out
    assert several.startswith(f"== 1 ==\n{alone}== 2 ==\n")
    assert "\n== 3 ==\nx" in several
    call(monkeypatch, run)  # from the end-of-text token, as long as the model allows
    assert capsys.readouterr().out.endswith("\n")


def test_an_empty_prompt_is_none_and_said_to_be(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    printed = []
    for prompt in ([], ["--prompt", ""], ["--prompt", "x"]):
        call(monkeypatch, str(runs.folder("mixit")), *prompt, "--tokens", "8")
        printed.append(capsys.readouterr())
    assert printed[0] == printed[1]
    assert printed[0].err.startswith("Without a prompt") and printed[0].err.count("\n") == 1
    assert printed[2].err == ""


MISTAKES = {
    "--tokens 0": "--tokens is 0",
    "--temperature -1": "--temperature is -1.0: it must be 0 or above",
    "--top-p 0": "--top-p is 0.0: it must be above 0",
    "--seed -1": "--seed is -1",
    "--step 3": "has no checkpoint of step 3 (it has: 20)",
    "--prompt  --tokens 32": "a prompt of 1 tokens and 32 new ones exceed",
    "--prompt abc --tokens 30": "a prompt of 3 tokens and 30 new ones exceed the model's "
    "length of 32: shorten the prompt, or lower --tokens",
    "--prompt " + 32 * "x": "a prompt of 32 tokens and 1 new ones",
    "--prompt a --prompts b": "--prompt and --prompts are both given",
    "--prompts absent.txt": "--prompts absent.txt does not exist",
    "--prompt \udcff": "is not UTF-8",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_sentence(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, arguments: str
) -> None:
    for variant in ("standard", "mixit"):
        with pytest.raises(SystemExit) as exit_:
            call(monkeypatch, str(runs.folder(variant)), *arguments.split(" "))
        assert exit_.value.code == 2
        output = capsys.readouterr()
        assert MISTAKES[arguments] in output.err and output.err.count("\n") == 1
        assert not output.out

"""A share of what `python -m tests.fuzz` tries, and that a broken promise would be noticed."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forkserver import PRELOADED, Forkserver
from tests.fuzz.attempt import CANARY, BrokenPromise, Outcome, attempt, check
from tests.fuzz.good import Good, make_good
from tests.fuzz.kinds import KINDS
from tests.fuzz.run import COMMAND_MODULES, fuzz, in_turn

SECONDS = 120  # a hang has no end; a machine with much else to do is not one


@pytest.fixture(scope="module")
def commands() -> Iterator[Forkserver]:
    server = Forkserver([*PRELOADED, *COMMAND_MODULES])
    yield server
    server.close()


@pytest.fixture(scope="module")
def good(commands: Forkserver, tmp_path_factory: pytest.TempPathFactory) -> Good:
    return make_good(tmp_path_factory.mktemp("good"), commands)


def test_bad_input_ends_in_one_sentence(commands: Forkserver, good: Good, tmp_path: Path) -> None:
    cases = in_turn(150, list(KINDS))
    _try(cases, commands, good, tmp_path, seed=18)


@pytest.mark.slow
def test_more_bad_input_ends_in_one_sentence(
    commands: Forkserver, good: Good, tmp_path: Path
) -> None:
    _try(in_turn(1000, list(KINDS)), commands, good, tmp_path, seed=19)


def _try(
    cases: list[tuple[str, int]], server: Forkserver, good: Good, folder: Path, seed: int
) -> None:
    tried = fuzz(server, good, folder, cases=cases, seed=seed, seconds=SECONDS)
    broken = [end for _, end in tried if isinstance(end, BrokenPromise)]
    assert not broken, "\n\n".join(map(str, broken))


def _outcome(folder: Path, **what: object) -> Outcome:
    usual = {"words": (), "code": 2, "output": "mixit-titan: no\n", "folder": folder, "new": ()}
    return Outcome(**usual | what)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"code": None}, "did not end in time"),
        ({"output": "Traceback (most recent call last):\nmixit-titan: no\n"}, "a traceback"),
        ({"code": -9}, "exit code -9"),
        ({"output": "no\n"}, "0 sentences with exit code 2"),
        ({"output": "mixit-titan: no\nmixit-titan: no\n"}, "2 sentences"),
        ({"output": "mixit-titan: no\nreally\n"}, "more words after the sentence"),
        ({"output": "mixit-titan: \x1b[31mno\n"}, "a terminal cannot show"),
        ({"new": ("out/result.json",)}, "it refused, and wrote out/result.json"),
        ({"code": 1, "new": ("checkpoint/.unfinished-3/x",)}, "left checkpoint/.unfinished-3/x"),
        ({"code": 1, "new": ("nan.json",)}, "nan.json is not JSON"),
    ],
)
def test_a_broken_promise_is_noticed(what: dict, message: str, tmp_path: Path) -> None:
    (tmp_path / "nan.json").write_text('{"loss": NaN}')
    check(_outcome(tmp_path))
    with pytest.raises(BrokenPromise, match=message):
        check(_outcome(tmp_path, **what))


def test_code_that_was_run_is_noticed(tmp_path: Path) -> None:
    (tmp_path / CANARY).touch()
    with pytest.raises(BrokenPromise, match="it ran code"):
        check(_outcome(tmp_path))


def test_an_attempt_says_what_happened(commands: Forkserver, tmp_path: Path) -> None:
    right = attempt(commands, ["--version"], tmp_path, seconds=SECONDS)
    assert right.code == 0 and not right.sentences and not right.new
    wrong = attempt(commands, ["params", "--ranks", "x"], tmp_path, seconds=SECONDS)
    assert wrong.code == 2
    assert wrong.sentences == ["mixit-titan: --ranks is 'x': expected a whole number"]
    long = ["task", "addition", "--steps", "1000000", "--out", "out"]
    assert attempt(commands, long, tmp_path, seconds=3).timed_out


def test_a_case_depends_on_its_number_alone(good: Good, tmp_path: Path) -> None:

    for kind, make in KINDS.items():
        made = []
        for place in (tmp_path / f"{kind} 1", tmp_path / f"{kind} 2"):
            place.mkdir()
            made.append(make(random.Random(5), place, good).words)
        assert made[0] == made[1]

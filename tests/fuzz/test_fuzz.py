"""A sample of what `python -m tests.fuzz` tries, and proof that a broken promise would be
noticed."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forkserver import PRELOADED, Forkserver
from tests.fuzz.attempt import CANARY, BrokenPromise, Outcome, attempt, check
from tests.fuzz.good import CONFIGS, Good, make_good
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
@pytest.mark.parametrize("part", range(4))
def test_more_bad_input_ends_in_one_sentence(
    commands: Forkserver, good: Good, tmp_path: Path, part: int
) -> None:
    """1,000 cases."""
    _try(in_turn(1000, list(KINDS))[part::4], commands, good, tmp_path, seed=19)


def _try(
    cases: list[tuple[str, int]], server: Forkserver, good: Good, folder: Path, seed: int
) -> None:
    tried = list(fuzz(server, good, folder, cases=cases, seed=seed, seconds=SECONDS))
    assert len(tried) == len(cases)
    broken = [end for _, end in tried if isinstance(end, BrokenPromise)]
    assert not broken, "\n\n".join(map(str, broken))


@pytest.mark.parametrize("hangs", [False, True])
def test_what_is_late_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch,
    commands: Forkserver,
    good: Good,
    tmp_path: Path,
    hangs: bool,
) -> None:
    """A command that hangs is still a broken promise."""
    codes = iter([None, 2, None if hangs else 2])

    def scripted(server: Forkserver, words: list[str], folder: Path, *, seconds: float) -> Outcome:
        said = "mixit-titan: no\n"
        return Outcome(words=tuple(words), code=next(codes), output=said, folder=folder, new=())

    monkeypatch.setattr("tests.fuzz.run.attempt", scripted)
    cases = [("words", 0), ("words", 1)]
    (first, second) = fuzz(commands, good, tmp_path, cases=cases)
    assert first == ("words", 2)
    assert isinstance(second[1], BrokenPromise) == hangs and next(codes, "none left") == "none left"


TRAIN = f"train {CONFIGS / 'debug_mixit.toml'} --dump_folder run"
HOLES = {
    "task addition --lr nan": "--lr is nan: it must be above 0",
    "task addition --beta2 5": "--beta2 is 5.0: it must be at least 0 and below 1",
    "task addition --width 0": "--width is 0: it must be in 1..65536",
    "task addition --clip nan": "--clip is nan: it must be above 0",
    f"task addition --width 1{20 * '0'}": "it must be in 1..65536",
    f"task addition --stack mixit --layers {5000 * '1'}": "expected an integer",
    f"task hop --length 1{20 * '0'}": "it must be in 1..10000",
    f"sweep addition --set batch=1{20 * '0'}": "it must be in 1..1048576",
    f"prepare {300 * 'x'} --tokenizer bytes --out out": "cannot be used: File name too long",
    f"prepare stdlib --tokenizer bytes --out {300 * 'x'}": "File name too long",
    f"prepare stdlib --train-tokenizer 1{12 * '0'} --out out": "it must be in 1..16777216",
    "bench --rounds nan": "--rounds is 'nan': expected an integer",
    f"bench --width {5000 * '1'}": "it must be a number, or several",
    "bench --tolerance nan": "--tolerance is nan: it must be at least 0",
    f"{TRAIN} --checkpoint.initial_load_path /nowhere": "'/nowhere' is not a folder",
    f"{TRAIN} --checkpoint.load_step 3": "load_step is 3 and run/checkpoint has no checkpoint",
    f"{TRAIN} --model.width 1000000 --model.heads 1": "and this machine has",
}


@pytest.mark.parametrize(("words", "said"), HOLES.items(), ids=range(len(HOLES)))
def test_what_was_accepted_once_is_refused(
    words: str, said: str, commands: Forkserver, tmp_path: Path
) -> None:
    outcome = attempt(commands, words.split(), tmp_path, seconds=SECONDS)
    check(outcome, codes=[2])
    assert said in outcome.sentences[0]


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
        ({"output": "mixit-titan: no\n  mixit-titan train x\n"}, "more words after the sentence"),
        ({"output": "mixit-titan: no:\n  mixit-titan train x\n\nreally\n"}, "more words"),
        ({"output": "mixit-titan: \x1b[31mno\n"}, "a terminal cannot show"),
        ({"new": ("out/result.json",)}, "it refused, and wrote out/result.json"),
        ({"code": 1, "new": ("checkpoint/.unfinished-3/x",)}, "left checkpoint/.unfinished-3/x"),
        ({"code": 1, "new": ("nan.json",)}, "nan.json is not JSON"),
    ],
)
def test_a_broken_promise_is_noticed(what: dict, message: str, tmp_path: Path) -> None:
    (tmp_path / "nan.json").write_text('{"loss": NaN}')
    check(_outcome(tmp_path))
    check(_outcome(tmp_path, output="mixit-titan: no, but:\n  mixit-titan train x\n"))
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
    assert wrong.sentences == ["mixit-titan: --ranks is 'x': expected an integer"]
    long = ["task", "addition", "--steps", "1000000", "--out", "out"]
    assert attempt(commands, long, tmp_path, seconds=3).timed_out


def test_a_case_depends_on_its_number_alone(good: Good, tmp_path: Path) -> None:

    for kind, make in KINDS.items():
        made = []
        for place in (tmp_path / f"{kind} 1", tmp_path / f"{kind} 2"):
            place.mkdir()
            made.append(make(random.Random(5), place, good).words)
        assert made[0] == made[1]

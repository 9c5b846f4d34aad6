"""[[data.sources]] of a file: what it becomes, and what is refused."""

from pathlib import Path

import pytest

from mixit_titan.config.plan import plan_run
from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.data.mixture import Source, Weights
from mixit_titan.errors import ConfigError
from tests.shards import random_documents, write_shards

DEBUG = str(shipped_configs()["debug_standard"])


def words(*tables: str) -> list[str]:
    return ["--data.sources", "[" + ", ".join(f"{{{table}}}" for table in tables) + "]"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for n, name in enumerate(("web", "code", "more/web")):
        texts = random_documents(30, 50, seed=n)
        write_shards(root / name, train=texts, validation=texts[:9])
    (root / "own.txt").write_text("a few words " * 900)
    return root


def test_sources_become_a_mixture(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f"""
        [model]
        variant = "standard"
        seq_len = 32
        [training]
        global_batch_size = 8
        steps = 100
        [[data.sources]]
        path = "{data}/web"
        weight = 0.75
        [[data.sources]]
        path = "{data}/code"
        weight = 0.25
        [[data.sources]]
        path = "{data}/web"
        weight = 0.5
        after = 10
        [[data.sources]]
        path = "{data}/more/web"
        name = "late"
        weight = 1
        after = 20
        """
    )
    run = load_run(str(file), [], world_size=1)
    rows = run.dataloader
    assert rows.dataset_path == f"{data}/web"
    names = {f"{data}/web": "web", f"{data}/code": "code", f"{data}/more/web": "late"}
    assert rows.sources == [Source(path, name) for path, name in names.items()]
    assert rows.weights == [
        Weights(0, (0.75, 0.25, 0)),
        Weights(80, (0.5, 0.25, 0)),
        Weights(160, (0.5, 0.25, 1)),
    ]
    assert run.model_spec.model.vocab_size == 320  # 257, rounded up
    assert list(run.validator.dataloader.by_source()) == ["web", "code", "late"]
    # What the command line says takes the place of what the file says.
    alone = load_run(str(file), ["--data.path", f"{data}/code"], world_size=1).dataloader
    assert (alone.dataset_path, alone.sources, alone.weights) == (f"{data}/code", [], [])


WEB, CODE = 'path = "web", weight = 1', 'path = "code", weight = 1'
WRONG = {
    'path = "web", weight = 0': "path = 'web' has weight = 0, so it would never be read",
    'path = "web", weight = -1': "data.sources.weight is -1: it must be in 0..",
    'path = "web", weight = nan': "data.sources.weight is nan: it must be in 0..",
    'path = "web", weight = inf': "data.sources.weight is inf: it must be finite and in 0..",
    'path = "web", weight = "much"': "data.sources.weight in .* is 'much': expected a number",
    'path = "web"': "path = 'web' has no weight: give it one",
    "weight = 1": "data.sources.path is missing: name the data of each source",
    'path = "web", wieght = 1': "unknown key .* did you mean 'data.sources.weight'",
    f"{WEB}}}, {{{WEB}": "path = 'web' has two weights after step 0: leave one out",
    f'{WEB}}}, {{path = "more/web", weight = 1': "2 paths are called 'web' in the metrics",
    f'{WEB}, name = "a/b"': "data.sources.name is 'a/b': it must consist of letters",
    f'{WEB}}}, {{path = "web", weight = 0, after = 5': "no source has a weight above 0",
    f"{WEB}}}, {{{CODE}, after = 60": "would never change, because after = 60 and the last step",
    f"{WEB}, after = 5": "no source has a weight above 0: set one",
    'path = "web", weight = 0.123456789}, {path = "code", weight = 1': "with fewer digits",
    'path = "no/where", weight = 1': r"\[\[data.sources\]\]: data.path = 'no/where' does not",
}


@pytest.mark.parametrize(("tables", "message"), WRONG.items())
def test_what_is_no_mixture_is_one_sentence(
    data: Path, monkeypatch: pytest.MonkeyPatch, tables: str, message: str
) -> None:
    monkeypatch.chdir(data)
    with pytest.raises(ConfigError, match=message) as error:
        load_run(DEBUG, [*words(tables), "--training.steps", "60"], world_size=1)
    assert "\n" not in str(error.value)


def test_a_path_and_sources_are_refused(data: Path) -> None:
    given = ["--data.path", str(data / "web"), *words(f'path = "{data}/code", weight = 1')]
    with pytest.raises(ConfigError, match=r"data\.path = .* and data\.sources are both given"):
        plan_run(DEBUG, given, world_size=1)


def test_sources_of_two_tokenizers_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    given = words(WEB, 'path = "synthetic", weight = 1')
    with pytest.raises(ConfigError, match=r"'web' has the tokenizer 'bytes' and 'synthetic' has "):
        load_run(DEBUG, [*given, "--training.seq_len", "32"], world_size=1)


def test_a_step_is_named_only_where_it_has_the_same_rows_on_all_ranks(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    given = [*words(WEB, f"{CODE}, after = 5"), "--training.global_batch_size", "-1"]
    with pytest.raises(ConfigError, match=r"after = 5 needs training\.global_batch_size"):
        plan_run(DEBUG, given, world_size=1)


def test_a_text_can_be_a_source(data: Path) -> None:
    tables = words(f'path = "{data}/own.txt", weight = 1', f'path = "{data}/web", weight = 1')
    run = load_run(DEBUG, [*tables, "--model.seq_len", "32"], world_size=1)
    assert [source.name for source in run.dataloader.sources] == ["own.txt", "web"]

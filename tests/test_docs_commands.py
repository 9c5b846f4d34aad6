"""Every command in README.md and docs/ could be typed as it stands: its options exist and go
together, its keys are those of a run's file, and the files that it names are shipped."""

from pathlib import Path

import pytest

from mixit_titan.errors import ConfigError
from tests.documented import (
    PAGES,
    ROOT,
    check_command,
    check_names,
    commands,
    problems,
    refusals,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_can_be_typed(page: Path) -> None:
    assert not list(problems(page))


def test_the_commands_are_found() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    assert len(commands(text)) > 150
    lines = (
        "Say `mixit-titan doctor`:",
        "    $ mixit-titan train x.toml \\",
        "      --a.b '[1,",
        "      2]'",
    )
    block = "\n".join(lines)
    assert len(refusals(text)) == 2
    assert commands(block) == ["mixit-titan train x.toml  --a.b '[1, 2]'"]


@pytest.mark.parametrize(
    ("command", "said"),
    {
        "mixit-titan trian train_configs/debug_mixit.toml": "did you mean 'train'",
        "mixit-titan train train_configs/debug_mixit.toml --model.varant x": "'model.variant'",
        "mixit-titan train train_configs/debug_mixt.toml": "there is no train_configs/debug_mixt",
        "mixit-titan train train_configs/debug_mixit.toml --training.steps 0": "at least|in 1",
        "mixit-titan task retrieval --pear 4": "did you mean '--pairs'",
        "mixit-titan sweep retrieval --grid pear=4": "pear",
        "mixit-titan suite mda": "did you mean 'mad'",
        "mixit-titan bench --varints mixit": "did you mean '--variants'",
        "mixit-titan analyze attention": "name its folder, RUN_DIR",
        "mixit-titan generate --prompt a": "RUN_DIR is missing",
        "torchrun -m mixit_titan train CONFIG.toml --training.stps 3": "'training.steps'",
        "sbatch slurm/task.sbatch retrieval --varint mixit": "did you mean '--variant'",
        "sbatch slurm/tsk.sbatch retrieval": "there is no slurm/tsk",
        "make tset": "tset",
        "python benchmarks/mixin.py": "there is no benchmarks/mixin",
        "mixit-titan prepare SOURCE [--tokeniser T]": "did you mean '--tokenizer'",
    }.items(),
)
def test_a_command_that_could_not_be_typed_is_found(command: str, said: str) -> None:
    with pytest.raises((ConfigError, AssertionError), match=said):
        check_command(command)


def test_within_a_sentence_names_are_enough() -> None:
    check_names("mixit-titan params --variant V")
    with pytest.raises(ConfigError, match="did you mean '--variant'"):
        check_names("mixit-titan params --varant V")

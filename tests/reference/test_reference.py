"""docs/reference says what the code says, and all of it."""

import dataclasses
import re
from pathlib import Path
from typing import Any, get_origin

import pytest

from mixit_titan.cli import COMMANDS
from mixit_titan.config.sections import GroupSection, SourceSection
from mixit_titan.config.toml import fill
from mixit_titan.errors import ConfigError
from mixit_titan.fields import entries
from mixit_titan.options import option_types
from mixit_titan.reference.commands import FORMS
from mixit_titan.reference.config import REQUIRED
from mixit_titan.reference.pages import PAGES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    written = (DOCS / "reference" / name).read_text()
    assert written == PAGES[name](), "stale: run `python -m mixit_titan.reference`"


class Read(Exception):
    """Raised in place of reading options, with what would read them."""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_form_of_a_command_is_what_reads_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cli(form: type, **_: Any) -> None:
        raise Read(get_origin(form) or form)

    monkeypatch.setattr("mixit_titan.options.tyro.cli", cli)
    with pytest.raises(Read) as read:
        COMMANDS[name](["retrieval"])  # `task` asks for a name before it reads options
    assert read.value.args == (FORMS[name],)


def test_every_option_has_its_line() -> None:
    """As `options.py` finds them, which words its errors by them."""
    page = (DOCS / "reference" / "commands.md").read_text()
    for name, form in FORMS.items():
        section = page.partition(f"## mixit-titan {name}\n")[2].partition("\n## ")[0]
        for option, _ in option_types(form):
            if option not in ("--run", "--no-run"):
                written = option in section or option.replace("--no-", "--", 1) in section
                assert written, (name, option)


def test_every_key_has_its_line_and_every_line_a_description() -> None:
    page = (DOCS / "reference" / "config.md").read_text()
    sections = dict(
        re.findall(r"^## \[([\w.]+)\]\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    )
    assert {"model", "model.mixing", "data", "training", "parallelism", "watch"} <= sections.keys()
    lines = [line for line in page.partition("## Flavors")[0].splitlines() if line[:3] == "| `"]
    assert len(lines) > 120
    assert not [line for line in lines if line.endswith("|  |")]
    # As torchtitan 0.3.0 has them, and not as the program sets them itself.
    assert "`tensor_parallel_degree` | integer, in 1..1048576 | `1` |" in sections["parallelism"]
    assert "`create_seed_checkpoint`" not in sections["checkpoint"]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_table_is_refused_without_what_it_requires(key: str) -> None:
    section, _, last = key.rpartition(".")
    form = {"data.sources": SourceSection, "optimizer.groups": GroupSection}[section]
    table = {"path": "x", "weight": 1.0} if form is SourceSection else {"parts": "mlp"}
    del table[last]
    with pytest.raises(ConfigError, match=last):
        fill(form, table, section=section, where="a file")


def test_of_another_project_a_description_is_one_sentence() -> None:
    from torchtitan.config.configs import ParallelismConfig

    found = {entry.name: entry.text for entry in entries(ParallelismConfig)}
    assert found["tensor_parallel_degree"] == "Tensor Parallelism degree."
    assert found["spmd_backend"] == "SPMD backend selector."


@dataclasses.dataclass
class Form:
    plain: int
    several: tuple[str, ...] = ()
    """One sentence. And another
    on two lines."""
    bars: float | None = None
    """`a|b` or *c*."""


def test_a_description_is_the_text_below_the_field() -> None:
    assert [(e.name, e.text) for e in entries(Form)] == [
        ("plain", ""),
        ("several", "One sentence. And another on two lines."),
        ("bars", "`a|b` or *c*."),
    ]

"""Invalid configs and overrides."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any, get_type_hints

from mixit_titan.config.sections import (
    HIDDEN,
    GroupSection,
    MixingSection,
    Sections,
    SourceSection,
    TopLevel,
)
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape
from tests.fuzz.case import Case
from tests.fuzz.good import Good
from tests.fuzz.values import NUMBERS, TEXTS, WHOLE, bad_stack, bad_value, mangled


def _keys() -> dict[str, Any]:
    """Every key of a run -> its type."""
    found = dict(get_type_hints(TopLevel))
    sections = get_type_hints(Sections)
    parts = [*sections.items(), ("model", Shape), ("model.mixing", Recipe)]
    for section, cls in [*parts, ("model.mixing", MixingSection)]:
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if field.name not in HIDDEN.get(section, ()):
                found[f"{section}.{field.name}"] = hints[field.name]
    return found


KEYS = _keys()
NOWHERE = "below_a_file/run"
"""A folder that cannot be made, so that no run begins."""
_NOT_NAMED = ("dump_folder", "data.path")
_FIELDS = ["[a]\n" * 3, "[[training]]\n", "a.b.c = 1\n", "training = 3\n", "[training]\n" * 2]
_FIELDS += ["[[optimizer.groups]]\nparts = 'qk'\nfreeze_until = 0\n", "[[optimizer.groups]]\n"]
_FIELDS += ["[optimizer.groups]\nparts = 'qk'\n", "[[data.sources]]\npath = 'stdlib'\n" * 2]
_FIELDS += ["[[data.sources]]\n", "[data.sources]\n", "[eval]\nfreq = -1\n", "[[eval]]\n"]
_FIELDS += ["[eval]\ntasks = ['no_such_task']\n", "[eval]\ntasks = 3\n", "[eval]\nfreq = 2\n"]
_FIELDS += ["x = " + "[" * 2000 + "\n", "x = {a = {a = {a = 1}}}\n", "\ufeff", "\0", "'''", '"""']


def override(rng: random.Random, folder: Path, good: Good) -> Case:
    """A good config with one or two keys that may not be, up to where the run would begin."""
    words = [word for _ in range(rng.randint(1, 2)) for word in _override(rng)]
    (folder / "below_a_file").write_text("")
    base = ["train", str(_config(rng, "debug_")), "--data.path", str(good.data)]
    return Case([*base, *words, "--dump_folder", NOWHERE], codes=[2])


def estimate(rng: random.Random, folder: Path, good: Good) -> Case:
    """The same for commands that only read a config."""
    words = [word for _ in range(rng.randint(1, 2)) for word in _override(rng)]
    config = str(_config(rng))
    commands = [
        ["params", "--config", config],
        ["submit", config, "--dry-run", "--time", "1:00:00"],
    ]
    return Case([*rng.choice(commands), *words])


def trained(rng: random.Random, folder: Path, good: Good) -> Case:
    """One key of a run that begins if nobody refuses it, and that is over after one step."""
    small = ["--model.width", "16", "--model.heads", "2", "--model.layers", "1"]
    small += ["--model.hidden", "16", "--model.seq_len", "32", "--training.seq_len", "32"]
    small += ["--training.local_batch_size", "2", "--training.global_batch_size", "2"]
    small += ["--training.steps", "1", "--data.path", str(good.data), "--dump_folder", "run"]
    long = ("training.steps", "training.global_batch_size", "training.local_batch_size")
    words = _override(rng, without=(*_NOT_NAMED, *long))
    leaves = ("run", "logs", "comm_traces", "*.json", "rank_*")
    return Case(["train", str(good.config), *small, *words], may_leave=leaves)


def broken_file(rng: random.Random, folder: Path, good: Good) -> Case:
    """A file that is not TOML any more, or not a run's."""
    text = _config(rng).read_text()
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(lines))
        key, value = rng.choice([*KEYS]).rpartition(".")[2], rng.choice([*WHOLE, *NUMBERS, *TEXTS])
        changed = [mangled(rng, lines[place]), lines[place] * 2, "", f"{key} = {value}\n"]
        changed += [f'{key} = "{value}"\n', lines[place] + rng.choice(_FIELDS)]
        lines[place] = rng.choice(changed)
    content = "".join(lines).encode(errors="surrogateescape")
    if rng.random() < 0.2:
        place = rng.randrange(len(content))
        content = content[:place] + rng.randbytes(rng.randint(0, 8)) + content[place + 1 :]
    (folder / "run.toml").write_bytes(content)
    (folder / "below_a_file").write_text("")
    data = ["--device", "auto", "--data.path", str(good.data)]
    commands = [
        ["train", "run.toml", *data, "--dump_folder", NOWHERE],
        ["params", "--config", "run.toml"],
        ["submit", "run.toml", "--dry-run"],
        ["bench", "run.toml", "--device", "cpu", "--out", NOWHERE],
    ]
    return Case(rng.choice(commands))


def _config(rng: random.Random, start: str = "") -> Path:
    return rng.choice([path for name, path in shipped_configs().items() if name.startswith(start)])


def _group(rng: random.Random, hint: Any) -> str:
    """A table of [[optimizer.groups]], on a line."""
    key, hint = rng.choice([*get_type_hints(GroupSection).items()])
    parts = rng.choice(["qk", "@upper", "head", mangled(rng, "mlp@2-5 norm")])
    value = bad_value(rng, hint)
    quoted = rng.choice([value, json.dumps(value)])
    return f"[{{parts = {json.dumps(parts)}, lr_factor = 0.5}}, {{{key} = {quoted}}}]"


def _source(rng: random.Random, hint: Any) -> str:
    """Tables of [[data.sources]], on a line."""
    key, hint = rng.choice([*get_type_hints(SourceSection).items()])
    value = bad_value(rng, hint)
    quoted = rng.choice([value, json.dumps(value)])
    other = rng.choice(["", 'path = "synthetic", ', 'path = "stdlib", weight = 0.5, '])
    return f'[{{path = "stdlib", weight = 0.5}}, {{{other}{key} = {quoted}}}]'


def _stack(rng: random.Random, hint: Any) -> str:
    return rng.choice([bad_stack(rng), bad_stack(rng), bad_value(rng, hint)])


_OWN = {"optimizer.groups": _group, "data.sources": _source, "model.stack": _stack}
"""Keys whose values have a form of their own."""


def _override(rng: random.Random, without: tuple[str, ...] = _NOT_NAMED) -> list[str]:
    key = rng.choice([name for name in KEYS if name not in without])
    value = _OWN.get(key, bad_value)(rng, KEYS[key])
    if rng.random() < 0.1:
        key = mangled(rng, key)
    form = rng.random()
    if form < 0.1:
        return [f"--{key}"]
    return [f"--{key}={value}"] if form < 0.6 else [f"--{key}", value]

"""Makes a run from the words of a command line: the values of a preset, changed by `--key
value`."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from mixit_titan.errors import ConfigError
from mixit_titan.options import flag, option_types, read_options
from mixit_titan.tasks.presets import preset_values
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.task import task_class, task_name

_PRESET_DEPENDS_ON = ("stack", "mixer")  # besides the variant


def preset_run(name: str, preset: str, words: list[str], *, chosen: bool = True) -> Run:
    """Return a preset of a task for the variant or the stack that `words` name. Unless `chosen`,
    only with the values that all variants share."""
    cls = task_class(name)
    variant = word_after("--variant", words) or Settings.variant
    others = {key: word_after(flag(key), words) for key in _PRESET_DEPENDS_ON}
    shared = preset_values(preset, task_name(cls()), variant, chosen=False)
    said = word_after("--layers", words) or ""
    # A longer one is out of range, and refused when all options are read.
    layers = int(said) if re.fullmatch(r"\d{1,4}", said) else shared.get("layers", Settings.layers)
    same = Settings(variant=variant, layers=layers, **others).named()
    own = same.stack or same.mixer or same.variant
    keys, values = field_names(cls), preset_values(preset, task_name(cls()), own, chosen=chosen)
    values["variant"] = variant
    return Run(
        task=cls(**{key: value for key, value in values.items() if key in keys}),
        settings=Settings(**{key: value for key, value in values.items() if key not in keys}),
    )


def parse(form: Any, default: Any, name: str, words: list[str]) -> Any:
    """Read `default` changed by `--key value` words; `form` is its type, including the task's
    class."""
    flags = [option for option, _ in option_types(default)]
    twice = [option for option, times in Counter(["--task", *flags]).items() if times > 1]
    if twice:
        raise ConfigError(f"{name} has a field for {twice[0]}, which every task has: rename it")
    return read_options(form, words, prog=f"mixit-titan task {name}", default=default)


def run_words(run: Run, preset: str) -> list[str]:
    """Return what to type after `mixit-titan task` for this run, as `parse` would read it."""
    name = task_name(run.task)
    words = ["--preset", preset, "--variant", run.settings.variant]
    for key in _PRESET_DEPENDS_ON:
        if getattr(run.settings, key) is not None:
            words += [flag(key), getattr(run.settings, key)]
    default = preset_run(name, preset, words)
    if run.settings.stack is not None and run.settings.layers != default.settings.layers:
        words.append(f"--layers={run.settings.layers}")  # needed to read the stack
        default = preset_run(name, preset, words)
    for part, plain in ((run.task, default.task), (run.settings, default.settings)):
        for key in field_names(type(part)):
            value = getattr(part, key)
            if value == getattr(plain, key) or key in _PRESET_DEPENDS_ON:
                continue
            if f"--{key}={value}" in words:
                continue
            if isinstance(value, bool):
                words.append(flag(key if value else f"no-{key}"))
            elif isinstance(value, tuple):
                words += [flag(key), *map(str, value)]
            else:
                words.append(f"{flag(key)}={value}")  # a value can begin with a dash
    return [name, *words]


def typed_settings(grid: Iterable[str] | None = None, **others: str) -> dict[str, str]:
    """Map each setting to the option that sets it, in the form that `mixit_titan.options.typed`
    takes: `--width`; or, in a command with a grid of these keys, `--grid width` or `--set width`.
    `others` are options of the command itself."""
    names = field_names(Settings)
    if grid is None:
        return {name: flag(name) for name in names}
    keys = {*grid}
    return {name: f"--{'grid' if name in keys else 'set'} {name}" for name in names} | others


def field_names(cls: type) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [f.name for f in dataclasses.fields(cls)]


def word_after(flag: str, words: list[str]) -> str | None:
    """Return the value of a flag that decides what the others mean: the last one, if it is given
    several times, as for all flags."""
    for place, word in reversed([*enumerate(words)]):
        if word == flag and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None

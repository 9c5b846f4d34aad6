"""Reads the tables of a TOML file as dataclasses. Unknown keys and wrong types are errors that name
the key, the file and the nearest correct spelling."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import tomli
import typeguard

from mixit_titan.config.ranges import RANGES, check_names
from mixit_titan.errors import ConfigError, Problems, nearest, shown, unknown
from mixit_titan.options import describe
from mixit_titan.ranges import check_ranges
from mixit_titan.reading import read_text

T = TypeVar("T")


_LARGEST = 2**20  # bytes of a config


_INSTEAD = {
    "model.stack": ("variant", "mixer"),
    "model.variant": ("stack",),
    "model.mixer": ("stack",),
    "data.path": ("sources",),
    "data.sources": ("path",),
}
"""Keys of a file that are dropped when the command line sets this key."""


class Text(str):
    """A value from the command line, whose type is unknown until its key is looked up."""


def read_toml(path: str) -> dict[str, Any]:
    """The tables of a TOML file. Raises a ConfigError where it is missing or invalid."""
    try:
        return tomli.loads(read_text(path, advice="name a TOML file", limit=_LARGEST))
    except FileNotFoundError:
        raise ConfigError(f"there is no config file {path!r}") from None
    except ConfigError:
        raise
    except ValueError as error:  # not TOML, or a number with thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply") from None


def read_run(path: str, overrides: list[str]) -> dict[str, Any]:
    """The tables of a file, with the values of the command line in place of the file's."""
    table = read_toml(path)
    apply_overrides(table, overrides)
    return table


def check_options(overrides: list[str], own: type) -> None:
    """Refuse an override that is a misspelled option of the command itself, of which `own` is the
    dataclass: keys of a file contain a dot."""
    options = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(own)]
    for word in overrides:
        flag = word.partition("=")[0]
        if flag.startswith("--") and "." not in flag and nearest(flag, options):
            raise unknown("option", flag, options)


def apply_overrides(table: dict[str, Any], overrides: list[str]) -> None:
    """Put `--section.key value` pairs into `table`. A flag without a value means true."""
    words = list(overrides)
    while words:
        flag = words.pop(0)
        if not flag.startswith("--") or len(flag) == 2:
            raise ConfigError(
                f"unexpected argument {shown(flag)}: overrides look like --section.key value"
            )
        key, has_value, text = flag[2:].partition("=")
        if not has_value:
            text = words.pop(0) if words and not words[0].startswith("--") else "true"
        *sections, last = key.replace("-", "_").split(".")
        target = table
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise ConfigError(f"--{key}: {section!r} is a value, not a section")
        for other in _INSTEAD.get(key, ()):
            if not isinstance(target.get(other), Text):
                target.pop(other, None)
        table_within = _parse(text)
        target[last] = table_within if isinstance(table_within, dict) else Text(text)


def fill(
    cls: type[T],
    table: dict[str, Any],
    *,
    section: str,
    where: str,
    hidden: Iterable[str] = (),
    others: Iterable[str] = (),
    problems: Problems | None = None,
) -> T:
    """An instance of the dataclass `cls` from the keys of `table`.

    `hidden` fields are set by the program, not by the file. `others` are keys of the same section
    that belong to another dataclass. If `problems` gathers, a default takes the place of what is
    wrong.
    """
    problems = problems or Problems()
    hints = get_type_hints(cls)
    own = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in hidden]
    values = {}
    for key, value in table.items():
        with problems.noted():
            if key in own:
                checked = _checked(value, hints[key], f"{section}.{key}", where)
                full = {f"{section}.{key}": checked}
                check_ranges(full, RANGES)
                check_names(full)
                values[key] = checked
            elif key not in others:
                allowed = [f"{section}.{name}" for name in (*own, *others)]
                raise unknown("key", f"{section}.{key}", allowed, where=where)
    with problems.noted():
        try:
            return cls(**values)
        except ConfigError:
            raise
        except (ValueError, AssertionError, TypeError) as error:
            raise ConfigError(f"[{section}] in {where}: {error}") from error
    return cls()


def _checked(value: Any, hint: Any, key: str, where: str) -> Any:
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{key} in {where} is {shown(value)}: it must not contain a NUL")
    if isinstance(value, dict):  # a table of names, as made by `--model.init_std.qk 0.1`
        value = {k: _parse(v) if isinstance(v, Text) else v for k, v in value.items()}
    meanings = _meanings(value) if isinstance(value, Text) else [value]
    if get_origin(hint) is list and dataclasses.is_dataclass(form := get_args(hint)[0]):
        return _tables(meanings[0], form, key, where)
    for meaning in meanings:
        if _fits(meaning, hint):
            return meaning
    raise ConfigError(f"{key} in {where} is {shown(meanings[0])}: expected {describe(hint)}")


def _tables(value: Any, form: type[T], key: str, where: str) -> list[T]:
    """An array of tables, such as [[optimizer.groups]]."""
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise ConfigError(
            f"{key} in {where} is {shown(value)}: it must be tables, each with [[{key}]] above it"
        )
    return [fill(form, table, section=key, where=where) for table in value]


def _meanings(text: Text) -> list[Any]:
    """What a word on the command line can mean: a TOML value, a list, or itself."""
    return [_parse(text), [_parse(part) for part in text.split(",")], str(text)]


def _parse(text: str) -> Any:
    try:
        return tomli.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # tomli's own, and Python's for thousands of digits
        return str(text)


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(value, bool):  # a number to Python, but not in a config
        return bool in (hint, *get_args(hint))
    try:
        typeguard.check_type(value, hint)
    except typeguard.TypeCheckError:
        return False
    return True

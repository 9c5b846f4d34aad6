"""Tables of a TOML file as dataclasses: unknown keys and wrong types are errors that name the key,
the file and the nearest right spelling."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, get_type_hints

import tomli
import typeguard

from mixit_titan.errors import ConfigError, unknown

T = TypeVar("T")


def read_toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomli.load(file)
    except FileNotFoundError:
        raise ConfigError(f"there is no config file {path!r}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path!r} is a folder: name a TOML file") from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def apply_overrides(table: dict[str, Any], overrides: list[str]) -> None:
    """Put `--section.key value` pairs into `table`. A flag without a value means true."""
    words = list(overrides)
    while words:
        flag = words.pop(0)
        if not flag.startswith("--") or len(flag) == 2:
            raise ConfigError(
                f"unexpected argument {flag!r}: overrides look like --section.key value"
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
        target[last] = _parse_value(text)


def _parse_value(text: str) -> Any:
    """A TOML value, a comma-separated list, or else the text itself."""
    try:
        return tomli.loads(f"value = {text}")["value"]
    except tomli.TOMLDecodeError:
        return text.split(",") if "," in text else text


def fill(
    cls: type[T],
    table: dict[str, Any],
    *,
    section: str,
    where: str,
    hidden: Iterable[str] = (),
) -> T:
    """An instance of the dataclass `cls` from the keys of `table`.

    `hidden` fields are set by the program, not by the file.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{section} in {where} is {table!r}: it must be a section of keys")
    hints = get_type_hints(cls)
    allowed = [
        f.name
        for f in dataclasses.fields(cls)
        if f.init and f.name not in hidden and not f.name.startswith("_")
    ]
    values = {}
    for key, value in table.items():
        if key not in allowed:
            raise unknown(
                "key", f"{section}.{key}", [f"{section}.{k}" for k in allowed], where=where
            )
        values[key] = _checked(value, hints[key], f"{section}.{key}", where)
    try:
        return cls(**values)
    except ConfigError:
        raise
    except (ValueError, AssertionError, TypeError) as error:
        raise ConfigError(f"[{section}] in {where}: {error}") from error


def _checked(value: Any, hint: Any, key: str, where: str) -> Any:
    hint_text = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
    if isinstance(value, str) and typeguard_accepts([value], hint):
        value = [value]  # `--model.freeze qk` for a list of one
    # Python counts true as a number; a config does not.
    misused_bool = (
        isinstance(value, bool) and not typeguard_accepts("", hint) and ("bool" not in hint_text)
    )
    if misused_bool or not typeguard_accepts(value, hint):
        raise ConfigError(f"{key} in {where} is {value!r}: expected {hint_text}")
    return value


def typeguard_accepts(value: Any, hint: Any) -> bool:
    try:
        typeguard.check_type(value, hint)
    except typeguard.TypeCheckError:
        return False
    return True

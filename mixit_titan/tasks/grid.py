"""A grid of options as written: key=value,value ..."""

from collections.abc import Iterable

from mixit_titan.errors import ConfigError


def read_grid(words: Iterable[str]) -> dict[str, list[str]]:
    """Return the values of each key, as the user wrote them."""
    grid = {}
    for word in words:
        key, equals, values = word.partition("=")
        if not key or not equals or not all(values.split(",")):
            raise ConfigError(f"{word!r} is not part of a grid: write key=value,value")
        grid[key.replace("-", "_")] = values.split(",")
    return grid


def fixed_words(options: dict[str, list[str]]) -> list[str]:
    """Return the words of a command line for options with one value each."""
    for key, values in options.items():
        if len(values) > 1:
            raise ConfigError(f"--set {key}={','.join(values)}: it takes one value, --grid several")
    return [word for key, values in options.items() for word in option_words(key, values[0])]


def option_words(key: str, value: str) -> list[str]:
    """Return the words of a command line for one value of a grid."""
    flag = key.replace("_", "-")
    if value in ("true", "false"):
        return [f"--{'' if value == 'true' else 'no-'}{flag}"]
    return [f"--{flag}", value]

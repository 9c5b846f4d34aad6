"""A grid of options as it is written: key=value,value ..."""

from mixit_titan.errors import ConfigError


def read_grid(words: tuple[str, ...]) -> dict[str, list[str]]:
    """Key -> its values, as the user wrote them."""
    grid = {}
    for word in words:
        key, equals, values = word.partition("=")
        if not key or not equals or not all(values.split(",")):
            raise ConfigError(f"{word!r} is no part of a grid: write key=value,value")
        grid[key.replace("-", "_")] = values.split(",")
    return grid


def option_words(key: str, value: str) -> list[str]:
    """What to type for one value of a grid."""
    flag = key.replace("_", "-")
    if value in ("true", "false"):
        return [f"--{'' if value == 'true' else 'no-'}{flag}"]
    return [f"--{flag}", value]

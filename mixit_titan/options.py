"""Reads the options of a command from its words, by tyro; what cannot be read is one sentence."""

import contextlib
import dataclasses
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from mixit_titan.errors import ConfigError, shown, unknown
from mixit_titan.help import help_text
from mixit_titan.ranges import check_fields

T = TypeVar("T")

_MODEL_KEY = re.compile(r"\bmodel\.(?:mixing\.)?(\w+)")
_PLAIN = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


def read_options(form: type[T], words: Sequence[str], *, prog: str, default: Any = None) -> T:
    """Read a dataclass from `--key value` words and check its numbers against the ranges in its
    annotations. `default`, if given, supplies the values of all keys that are not named. `--help`
    prints the help and exits."""
    parsed, rest = read_known_options(form, words, prog=prog, default=default)
    if rest:
        if not rest[0].startswith("-"):
            raise ConfigError(
                f"unexpected argument {shown(rest[0])}: `{prog} --help` shows the options"
            )
        flags = [name for name, _ in option_types(form if default is None else default)]
        raise unknown(f"option of {prog.split()[-1]}", rest[0].partition("=")[0], flags)
    return parsed


def read_known_options(
    form: type[T], words: Sequence[str], *, prog: str, default: Any = None, checked: bool = True
) -> tuple[T, list[str]]:
    """Like `read_options`, but also return the words that are not options of the form. With
    `checked=False` the caller checks the ranges."""
    if "-h" in words or "--help" in words:
        print(help_text(form, default, prog=prog, flag=flag))
        raise SystemExit(0)
    said = io.StringIO()
    own = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(said):
            parsed, rest = tyro.cli(form, prog=prog, args=words, return_unknown_args=True, **own)
    except SystemExit:
        hints = dict(option_types(form if default is None else default))
        raise _refused(said.getvalue(), hints, words, prog) from None
    print(said.getvalue(), end="", file=sys.stderr)
    if checked:
        check_fields(parsed, flag)
    return parsed, rest


def check_once(words: Sequence[str], flags: Sequence[str]) -> None:
    """Refuse an option that takes several values and is given twice: the last would silently
    win."""
    for name in flags:
        if words.count(name) > 1:
            raise ConfigError(f"{name} is given twice: name all of them after one {name}")


def check_named(words: Sequence[str], name: str) -> None:
    """Refuse an option that takes several values and is given none: its default would silently
    apply."""
    if name in words and (words[words.index(name) + 1 :] or ["--"])[0].startswith("--"):
        raise ConfigError(f"{name} needs a value: name one or more, or leave it out")


def flag(key: str) -> str:
    """The option that sets a field: `--seq-len` for `seq_len`."""
    return f"--{key.replace('_', '-')}"


@contextlib.contextmanager
def typed(options: Mapping[str, str]) -> Iterator[None]:
    """Rewrite a ConfigError in the block so that it names what was typed: `--freeze`, not
    `model.freeze`. `options` maps a key of [model] to what sets it in this command."""
    try:
        yield
    except ConfigError as error:
        said = _MODEL_KEY.sub(lambda key: options.get(key[1], key[0]), str(error))
        error.args = (said,)
        raise


def describe(hint: Any) -> str:
    """`an integer`, `'none', 'selective', 'full'`, `a number or 'plain'`"""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) is Literal:
        return ", ".join(repr(value) for value in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(describe(h) for h in get_args(hint) if h is not NoneType)
    if get_origin(hint) is list:
        return f"a list of {describe(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        return f"a table of {describe(get_args(hint)[1])}"
    if get_origin(hint) is tuple:
        kinds = [describe(h) for h in get_args(hint) if h is not Ellipsis]
        return f"{kinds[0]}, one or more" if Ellipsis in get_args(hint) else " and ".join(kinds)
    return getattr(hint, "__name__", str(hint)).lower()


def option_types(form: Any) -> Iterator[tuple[str, Any]]:
    """Each option of a form, which is a class or an instance, with the type of its value."""
    hints = get_type_hints(form if isinstance(form, type) else type(form), include_extras=True)
    for field in dataclasses.fields(form):
        inner, hint = getattr(form, field.name, None), hints[field.name]
        if dataclasses.is_dataclass(inner):
            yield from option_types(inner)
            continue
        hint, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if any(note in (tyro.conf.Positional, tyro.conf.Suppress) for note in notes):
            continue
        names = [note.name for note in notes if getattr(note, "name", None)]
        yield flag(names[0] if names else field.name), hint
        if hint is bool:
            yield flag(f"no-{field.name}"), bool


def _refused(said: str, hints: dict[str, Any], words: Sequence[str], prog: str) -> ConfigError:
    """The error for what tyro refused. tyro's message is a box of many lines; only the option is
    taken from it, provided that it was actually given."""
    text = " ".join(line.strip("│╭╮╰╯─ ") for line in said.splitlines()).strip()
    given = {word.partition("=")[0]: place for place, word in enumerate(words)}
    for name in re.findall(r"--[\w-]+", text.partition("Argument helptext")[0]):
        if name not in hints or name not in given:
            continue
        place, expected = given[name], describe(hints[name])
        _, equals, value = words[place].partition("=")
        if not equals:
            value = next((word for word in words[place + 1 : place + 2]), "")
        if not equals and (not value or value.startswith("--")):
            return ConfigError(f"{name} needs a value: expected {expected}")
        return ConfigError(f"{name} is {shown(value)}: expected {expected}")
    missing = re.search(r"Missing from .*?: +(.*)", text)
    if missing:
        first = missing[1].split()[0]
        return ConfigError(f"{first} is missing: `{prog} --help` shows what it takes")
    return ConfigError(re.sub(r"\s+", " ", text.partition("For full helptext")[0]).strip())

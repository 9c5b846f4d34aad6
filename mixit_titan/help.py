"""What `mixit-titan COMMAND --help` prints, from the dataclass that reads the command's options."""

import dataclasses
import inspect
import shutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import tyro

from mixit_titan.fields import Entry, Group, entries

_WIDEST = 100
_COLUMN = 24  # where the descriptions begin
_PLACEHOLDERS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


def help_text(form: type, default: Any, *, prog: str, flag: Callable[[str], str]) -> str:
    """The help of a command, as wide as the terminal. `default` is an instance of the form that has
    the values of all options that are not named, or None; `flag` makes an option of a field."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    shown = [*_options(form, default, "options")]
    required, groups = [], {}
    for heading, entry in shown:
        positional = tyro.conf.Positional in entry.notes
        named = _placeholder(entry) if positional else _option(entry, flag)
        missing = entry.default is dataclasses.MISSING
        if positional and not missing:
            named = f"[{named}]"
        if positional or missing:
            required.append(named)
        groups.setdefault("arguments" if positional else heading, []).append((named, entry))
    optional = ["[OPTIONS]"] if groups.keys() - {"arguments"} else []
    usage = textwrap.wrap(
        " ".join(["usage:", prog, *required, *optional]), width, subsequent_indent="  "
    )
    parts = ["\n".join(usage), *_description(form, width)]
    for heading, rows in groups.items():
        lines = [_row(named, _text(entry), width) for named, entry in rows]
        parts.append("\n".join([f"{heading}:", *lines]))
    return "\n\n".join([*parts, _row("-h, --help", "Show this help and exit.", width)])


def _options(form: type, default: Any, heading: str) -> Iterator[tuple[str, Entry]]:
    """The options in their order, each with the heading of its group; those of a dataclass within
    come in its place."""
    for entry in entries(form if default is None else type(default)):
        if default is not None:
            entry = dataclasses.replace(entry, default=getattr(default, entry.name))
        if tyro.conf.Suppress in entry.notes:
            continue
        heading = next((n.heading for n in entry.notes if isinstance(n, Group)), heading)
        if dataclasses.is_dataclass(entry.default):
            yield from _options(type(entry.default), entry.default, heading)
        else:
            yield heading, entry


def _description(form: type, width: int) -> Iterator[str]:
    """The paragraphs of the docstring, then its examples, one per line."""
    said, *examples = inspect.cleandoc((get_origin(form) or form).__doc__ or "").split("Example:")
    for paragraph in said.split("\n\n"):
        if paragraph.strip():
            yield textwrap.fill(" ".join(paragraph.split()), width)
    if examples:
        lines = [line.strip() for text in examples for line in text.splitlines() if line.strip()]
        commands = [_broken(line, width) for line in lines]
        yield "\n".join([f"Example: {commands[0]}", *(f"         {each}" for each in commands[1:])])


def _broken(command: str, width: int) -> str:
    """A command, continued before an option as a shell takes it where it is longer than a line."""
    first, *options = command.split(" --")
    lines = [first]
    for option in options:
        longer = f"{lines[-1]} --{option}"
        if len(longer) + 13 <= width:
            lines[-1] = longer
        else:
            lines.append(f"--{option}")
    return " \\\n             ".join(lines)


def _row(named: str, text: str, width: int) -> str:
    indent = " " * _COLUMN
    lines = textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    if not lines:
        return f"  {named}"
    if len(named) + 4 > _COLUMN:
        return "\n".join([f"  {named}", *lines])
    return "\n".join([f"  {named}".ljust(_COLUMN) + lines[0][_COLUMN:], *lines[1:]])


def _option(entry: Entry, flag: Callable[[str], str]) -> str:
    names = [note.name for note in entry.notes if getattr(note, "name", None)]
    name = flag(names[0] if names else entry.name)
    if entry.hint is bool:
        return f"{name}, --no-{name[2:]}" if entry.default is True else name
    return f"{name} {_placeholder(entry)}"


def _placeholder(entry: Entry) -> str:
    metavars = [note.metavar for note in entry.notes if getattr(note, "metavar", None)]
    return metavars[0] if metavars else _kind(entry.hint)


def _kind(hint: Any) -> str:
    """`N`, `TEXT ...`, `cpu|paper`"""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(str(value) for value in inner if value is not None)
    if origin in (Union, UnionType):
        kinds = [_kind(each) for each in inner if each is not NoneType]
        return "|".join(dict.fromkeys(kinds))
    if origin is list or (origin is tuple and Ellipsis in inner):
        return f"{_kind(inner[0])} ..."
    if origin is tuple:
        return " ".join(map(_kind, inner))
    return _PLACEHOLDERS.get(hint, "VALUE")


def _text(entry: Entry) -> str:
    """The description, with the default where the description does not name it."""
    value = entry.default
    unsaid = value is None or value is False or value in (dataclasses.MISSING, (), [])
    if unsaid or "default" in entry.text.lower():
        return entry.text
    shown = " ".join(map(str, value)) if isinstance(value, tuple | list) else value
    shown = "on" if value is True else shown
    return f"{entry.text} (default: {shown})".strip()

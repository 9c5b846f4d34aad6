"""The fields of a dataclass as help and the reference show them: name, type, default, range,
description."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from mixit_titan.ranges import Range
from mixit_titan.tables import markdown_table

_KINDS = {int: "integer", float: "number", bool: "boolean", str: "string", Path: "path"}


@dataclass(frozen=True)
class Group:
    """Annotates a field: in --help, this field and those after it have this heading."""

    heading: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One field of a dataclass, described for a reader of the reference or of --help."""

    name: str
    hint: Any
    """The field's type, without its annotations."""
    notes: tuple[Any, ...] = ()
    """Its annotations: ranges, groups, and settings for tyro."""
    default: Any
    """`dataclasses.MISSING` if a value is required."""
    text: str
    """The field's docstring on one line."""

    @property
    def allowed(self) -> str:
        """The range that is annotated at the field, or ""."""
        return ", ".join(str(note) for note in self.notes if isinstance(note, Range))


def entries(form: type) -> Iterator[Entry]:
    """The fields that a user can set, in their order; class attributes are left out."""
    hints, texts = get_type_hints(form, include_extras=True), field_texts(form)
    for field in dataclasses.fields(form):
        if not field.init:
            continue
        hint, notes = hints[field.name], ()
        if get_origin(hint) is Annotated:
            hint, *rest = get_args(hint)
            notes = tuple(rest)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        said = [note.help for note in notes if getattr(note, "help", None)]
        text = said[0] if said else texts.get(field.name, "")
        yield Entry(name=field.name, hint=hint, notes=notes, default=default, text=text)


def field_texts(form: type) -> dict[str, str]:
    """Field -> the text below it in the source of its class. For fields of other projects this is
    the first sentence, for ours the complete text."""
    found = {}
    for cls in reversed(form.__mro__[:-1]):
        if not dataclasses.is_dataclass(cls):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(tree, ast.ClassDef)
        ours = cls.__module__.split(".")[0] not in ("torchtitan", "torch")
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = _text(below) if ours else _first_sentence(_text(below))
                if text:
                    found[field.target.id] = " ".join(text.split())
    return found


def kind(hint: Any) -> str:
    """A type as the reference calls it; a choice by its values: `none`, `selective`, `full`."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, UnionType):
        # A float is a number, and so is an int beside it.
        kinds = [kind(h) for h in inner if h is not NoneType and not (h is int and float in inner)]
        return " or ".join(kinds)
    if origin is list:
        one = kind(inner[0])
        return f"list of lists{one[4:]}" if one.startswith("list ") else f"list of {one}s"
    if origin is dict:
        return f"table of {kind(inner[1])}"
    if origin is tuple:
        kinds = [kind(h) for h in inner if h is not Ellipsis]
        return f"{kinds[0]}s" if Ellipsis in inner else " and ".join(kinds)
    return _KINDS.get(hint) or getattr(hint, "__name__", str(hint))


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table whose cells are escaped, so that they appear as written."""
    return markdown_table([*header], [[_plain(cell) for cell in row] for row in rows])


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().split("\n\n")[0].replace("``", "`").split())
    sentence = re.split(r"(?<=[\w)`])[.:] | -- ", paragraph)[0].rstrip(" .:-")
    return f"{sentence}." if sentence else ""


def _plain(cell: str) -> str:
    """Escape stars, brackets and bars outside of backticks."""
    parts = cell.split("`")
    parts[::2] = [part.replace("*", r"\*").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts).replace("|", r"\|")

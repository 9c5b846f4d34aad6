"""Forms of JSON that others may have written: declared once, and checked before use.

    {"step": COUNT, "loss?": NUMBER, "slices": {"*": {"*": float}}, "rows": [{"name": str}]}

An object must have at least the keys of its form. `key?` may be missing, and `*` stands for every
other key. A list has one form for all of its items; a tuple allows any of its forms.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import typeguard

COUNT = "a non-negative integer"
NUMBER = "a number, which may be NaN"
Form = Any
"""int, float (finite), str, bool, dict, list, None, object (anything), COUNT, NUMBER, or a dict,
list or tuple of forms."""

_DEEPEST = 64  # deeper than any file of ours; Python's own limit would break a later reader
_LARGEST = 2**63
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half a character, which cannot be printed


class WrongForm(ValueError):
    """A value is not of the declared form; the message fits into parentheses."""


def parse_json(text: bytes, form: Form) -> Any:
    """The value of a JSON text that must have this form; raises WrongForm."""
    try:
        value = json.loads(text.decode("utf-8-sig"))
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise WrongForm(f"it is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise WrongForm("it is nested too deeply") from None
    except ValueError as error:
        raise WrongForm(f"it is not JSON: {error}" if text.strip() else "it is empty") from None
    if not _is_shallow(value, _DEEPEST):
        raise WrongForm("it is nested too deeply")
    check_form(value, form)
    return value


def check_form(value: Any, form: Form, name: str = "") -> None:
    """Raise a WrongForm that names the first key whose value is not as declared."""
    if isinstance(form, tuple):
        if not any(_fits(value, each) for each in form):
            raise _wrong(value, " or ".join(_said(each) for each in form), name)
    elif not isinstance(form, dict | list):
        if not _LEAVES[form][1](value):
            raise _wrong(value, _said(form), name)
    elif type(value) is not type(form):
        raise _wrong(value, _said(type(form)), name)
    elif isinstance(form, list):
        for number, item in enumerate(value):
            check_form(item, form[0], f"{name}[{number}]")
    else:
        _check_object(value, form, name)


def check_fields(values: dict[str, Any], cls: type) -> None:
    """Raise a WrongForm for a value whose type is not the one that the dataclass declares."""
    for key, hint in get_type_hints(cls).items():
        if key in values:
            allowed = isinstance(values[key], bool) <= (bool in (hint, *get_args(hint)))
            try:
                typeguard.check_type(values[key], hint)
            except typeguard.TypeCheckError:
                allowed = False
            if not allowed:
                raise WrongForm(f"{key} is {values[key]!r:.40}")


def _check_object(value: dict[str, Any], form: dict[str, Form], name: str) -> None:
    declared = {key.removesuffix("?"): each for key, each in form.items()}
    inside = f"{name}." if name else ""
    for key in form.keys() - {"*"}:
        if not key.endswith("?") and key not in value:
            raise WrongForm(f"there is no {inside}{key}")
    for key, item in value.items():
        check_form(item, declared.get(key, declared.get("*", object)), f"{inside}{key:.60}")


def _fits(value: Any, form: Form) -> bool:
    try:
        check_form(value, form)
    except WrongForm:
        return False
    return True


def _wrong(value: Any, expected: str, name: str) -> WrongForm:
    what = {dict: "an object", list: "a list"}.get(type(value)) or f"{value!r:.40}"
    return WrongForm(f"{name or 'it'} is {what}, and not {expected}")


def _said(form: Form) -> str:
    return "another" if isinstance(form, dict | list) else _LEAVES[form][0]


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold."""
    return isinstance(value, float) or (type(value) is int and abs(value) < _LARGEST)


_LEAVES: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    object: ("anything", lambda value: True),
    None: ("null", lambda value: value is None),
    str: ("text", lambda value: isinstance(value, str)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    dict: ("an object", lambda value: isinstance(value, dict)),
    list: ("a list", lambda value: isinstance(value, list)),
    int: ("an integer", lambda value: type(value) is int and abs(value) < _LARGEST),
    COUNT: (COUNT, lambda value: type(value) is int and 0 <= value < _LARGEST),
    float: ("a finite number", lambda value: _is_number(value) and math.isfinite(value)),
    NUMBER: (NUMBER, _is_number),
}


def _is_shallow(value: Any, left: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inside = value.values() if isinstance(value, dict) else value
    return left > 0 and all(_is_shallow(each, left - 1) for each in inside)

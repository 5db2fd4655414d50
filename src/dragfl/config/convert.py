"""Plain tables to dataclasses. An error names the key, the value seen and the closest valid word. Imports no torch."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar, get_args

import msgspec

from dragfl.errors import SettingError, SpecError, nearest

T = TypeVar("T")


def convert(where: str, table: Mapping[str, Any], kind: type[T]) -> T:
    """Turn a table into a dataclass; the error for an unknown or mistyped key has the closest valid one."""
    check_keys(where, table, [f.name for f in dataclasses.fields(kind)])  # type: ignore[arg-type]
    try:
        converted = msgspec.convert(dict(table), kind, strict=True)
    except msgspec.ValidationError as error:
        raise SpecError(_readable(where, table, kind, error)) from None
    for key, value in table.items():  # msgspec ignores unknown keys of inner tables, such as a schedule
        inner = getattr(converted, key)
        if isinstance(value, Mapping) and dataclasses.is_dataclass(inner):
            check_keys(f"{where}.{key}".lstrip("."), value, [f.name for f in dataclasses.fields(inner)])
    return converted


def check_keys(where: str, table: Mapping[str, Any], known: typing.Iterable[str]) -> None:
    """Raise at the first key that is not known."""
    known = list(known)
    for key in table:
        if key not in known:
            shown = key if isinstance(key, str) and re.fullmatch(r"[\w.:+-]+", key) else repr(key)
            hint = nearest(key, known) or "; it has no settings, so remove it"
            raise SpecError(f"{_joined(where, shown)}: unknown key {key!r}{hint}")


def check_text(value: Any, where: str = "") -> None:
    """Raise at the first text with control characters: a terminal that prints them obeys them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_text(key, where)
            check_text(inner, _joined(where, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            check_text(inner, where)
    elif isinstance(value, str) and any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in value):
        raise SpecError(f"{where or 'the experiment'}: {value[:200]!a} holds control characters; remove them")


def _readable(where: str, table: Mapping[str, Any], kind: Any, error: msgspec.ValidationError) -> str:
    """A message of msgspec or of a dataclass, with the key path, the value and the closest valid word."""
    found = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*?)`)?", str(error), re.DOTALL)
    text, path = (found[1], found[2] or "") if found else (str(error), "")
    cause = error.__cause__
    if isinstance(cause, SettingError):
        return f"{_joined(where, path, cause.name)}: {cause.problem}"
    if isinstance(cause, SpecError):
        return str(cause)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text):
        return f"{_joined(where, path, missing[1])}: missing; {_advice(kind, path, missing[1])}"
    value: Any = table
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, Mapping) and part in value:
            value, kind = value[part], _inner_kind(kind, part)
        elif isinstance(value, list | tuple) and part.isdigit():
            value, kind = value[int(part)], None
    words = [word for choice in _choices(kind) if typing.get_origin(choice) is Literal for word in get_args(choice)]
    hint = nearest(str(value), words) if words else ""
    seen = f" (value {value!r}){hint}" if path else ""
    if text.startswith("Invalid enum value"):
        number = ", or give a whole number" if int in _choices(kind) else ""
        text, seen = f"unknown value {value!r}", hint + number
    text = text.replace("object", "table").replace(" | null", "")
    return f"{_joined(where, path) or 'the experiment'}: {text[:1].lower()}{text[1:]}{seen}"


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _advice(kind: Any, path: str, field: str) -> str:
    """What to give for a missing setting."""
    for part in re.findall(r"[^.\[\]]+", path):
        kind = _inner_kind(kind, part)
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    words = [wanted[choice] for choice in _choices(_inner_kind(kind, field)) if choice in wanted]
    return f"give {field} = {' or '.join(words) or 'a value'}"


def _inner_kind(kind: Any, field: str) -> Any:
    """The type of a field of the dataclass among the choices."""
    for choice in _choices(kind):
        if dataclasses.is_dataclass(choice):
            with suppress(NameError):  # an annotation that only a type checker can resolve
                return typing.get_type_hints(choice).get(field)
    return None


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)

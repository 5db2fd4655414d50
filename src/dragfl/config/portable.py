"""Whether the resolved spec describes an experiment completely, so that another process can build it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from dragfl.config.spec import Experiment, load
from dragfl.errors import DragflError


def why_not_portable(experiment: Experiment, alternative: str) -> str | None:
    """Why the tables of the spec do not describe all of the experiment; None if they do.

    A worker process loads the spec as a later `dragfl resume` would, so it cannot receive an object without a name.
    """
    advice = f"give module:attr of something that can be imported, or {alternative}"
    tables = experiment.tables()
    local = next((word for word in _strings(tables) if word.startswith(("__main__:", "object:"))), None)
    if local is not None:
        return f"'{local}' exists in this process alone; {advice}"
    try:
        json.dumps(tables)
        again = load(tables)
    except (DragflError, TypeError) as error:
        return f"{error}; {advice}"
    for key in ("dataset", "partition", "clients", "algorithm", "attack", "model"):
        if not _same(getattr(experiment, key), getattr(again, key)):
            return f"{key} holds an object that cannot be imported by name; {advice}"
    return None


def has_own_parts(tables: Mapping[str, Any]) -> bool:
    """Whether the spec names code of the user (`module:attr`)."""
    return any(":" in word for word in _strings(tables))


def _strings(value: Any) -> Iterator[str]:
    """Every string in a table."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


def _same(one: Any, other: Any) -> bool:
    """Equal in every field; objects of one type without attributes are equal."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(_same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, str | int | float | bool | bytes | frozenset | set):
        return bool(one == other)
    return not getattr(one, "__dict__", True)

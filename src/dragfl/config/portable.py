"""Whether the resolved spec describes an experiment completely, so that another process can build it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dragfl.config.spec import Experiment
from dragfl.own_code import OBJECT


def why_not_portable(experiment: Experiment, alternative: str) -> str | None:
    """Why the tables of the spec do not describe all of the experiment; None if they do.

    A worker process loads the spec as a later `dragfl resume` would, so it cannot receive an object without a name.
    """
    words = (part for word in _strings(experiment.tables()) for part in word.split("+"))
    local = next((word for word in words if word.startswith(("__main__:", OBJECT))), None)
    advice = f"give module:attr of something that can be imported, or {alternative}"
    return None if local is None else f"'{local}' exists in this process alone; {advice}"


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

"""From a name in a spec to an object, and back: built-in names, `module:attr` of a user's own, or the object itself."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dragfl.errors import SpecError, nearest

T = TypeVar("T")


def convert(where: str, table: Mapping[str, Any], kind: type[T]) -> T:
    """A table as a dataclass; an unknown or mistyped key is an error that names the nearest valid one."""
    known = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else None
    for key in table:
        if known is not None and key not in known:
            raise SpecError(f"{where}.{key}: unknown key '{key}'{nearest(key, known)}".lstrip("."))
    try:
        return msgspec.convert(dict(table), kind, strict=True)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, SpecError):
            raise error.__cause__ from None
        raise SpecError(_readable(where, table, str(error))) from None


def _readable(where: str, table: Mapping[str, Any], message: str) -> str:
    """msgspec's sentence with our key path and the value seen."""
    found = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*?)`)?", message)
    text, path = (found[1], found[2] or "") if found else (message, "")
    value: Any = table
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
    seen = f" (value {value!r})" if path else ""
    name = ".".join(p for p in (where, path) if p) or "the experiment"
    return f"{name}: {text[:1].lower()}{text[1:]}{seen}"


def import_object(where: str, target: str) -> Any:
    """`module:attr`, looked up among installed modules and in the current folder."""
    module_name, _, attr = target.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SpecError(
            f"{where}: cannot import '{module_name}' ({error}); it must be installed or lie in {here}"
        ) from None
    finally:
        sys.path.remove(here)
    try:
        return getattr(module, attr)
    except AttributeError:
        raise SpecError(f"{where}: module '{module_name}' has no '{attr}'{nearest(attr, vars(module))}") from None


def look_up(where: str, name: str, registry: Mapping[str, Any]) -> Any:
    """The class or function behind a built-in name or a `module:attr`."""
    if name in registry:
        return registry[name]
    if ":" in name:
        return import_object(where, name)
    raise SpecError(f"{where}: unknown name '{name}'{nearest(name, registry)}")


def build(where: str, given: Any, registry: Mapping[str, Any], methods: tuple[str, ...], key: str = "name") -> Any:
    """The part a spec asks for: a name, a table {name, settings...}, or (from Python) the object itself."""
    if isinstance(given, str):
        given = {key: given}
    if isinstance(given, Mapping):
        settings = dict(given)
        if not isinstance(settings.get(key), str):
            raise SpecError(f"{where}: no {key} in {dict(given)!r}; give one of {', '.join(registry)} or module:attr")
        name = settings.pop(key)
        found = look_up(f"{where}.{key}", name, registry)
        if dataclasses.is_dataclass(found) and isinstance(found, type):
            given = convert(where, settings, found)
        elif isinstance(found, type):
            given = _call(where, found, settings)
        elif settings:
            raise SpecError(f"{where}: '{name}' is not a class, so it takes no settings; got {settings!r}")
        else:
            given = found
    missing = [m for m in methods if not hasattr(given, m)]
    if missing:
        raise SpecError(f"{where}: {type(given).__name__} has no '{missing[0]}'; see the contract in dragfl.types")
    return given


def _call(where: str, found: type, settings: dict[str, Any]) -> Any:
    try:
        return found(**settings)
    except TypeError as error:
        raise SpecError(f"{where}: {found.__name__}(**{settings!r}) failed: {error}") from None


def describe(part: Any, registry: Mapping[str, Any], key: str = "name") -> dict[str, Any]:
    """The inverse of `build`: a table that names the part and spells out every setting."""
    kind = part if callable(part) and hasattr(part, "__qualname__") else type(part)
    builtin = {value: name for name, value in registry.items()}
    name = builtin.get(kind, f"{kind.__module__}:{kind.__qualname__}")
    settings = dataclasses.asdict(part) if dataclasses.is_dataclass(part) and not isinstance(part, type) else {}
    return {key: name, **without_none(settings)}


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null: an absent key means the same."""
    return {k: without_none(v) if isinstance(v, Mapping) else v for k, v in table.items() if v is not None}

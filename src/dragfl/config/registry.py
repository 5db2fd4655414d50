"""From a name in a spec to an object, and back: built-in names, `module:attr` of a user's own, or the object itself."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec

from dragfl.errors import SpecError, nearest

T = TypeVar("T")


def convert(where: str, table: Mapping[str, Any], kind: type[T]) -> T:
    """A table as a dataclass; an unknown or mistyped key is an error that names the nearest valid one."""
    _check_keys(where, table, kind)
    try:
        made = msgspec.convert(dict(table), kind, strict=True)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, SpecError):
            raise error.__cause__ from None
        raise SpecError(_readable(where, table, kind, str(error))) from None
    for key, value in table.items():  # a table inside, such as a schedule: msgspec passes over keys it does not know
        inner = type(getattr(made, key))
        if isinstance(value, Mapping) and dataclasses.is_dataclass(inner):
            _check_keys(f"{where}.{key}".lstrip("."), value, inner)
    return made


def _check_keys(where: str, table: Mapping[str, Any], kind: Any) -> None:
    known = [f.name for f in dataclasses.fields(kind)]
    for key in table:
        if key not in known:
            raise SpecError(f"{where}.{key}: unknown key '{key}'{nearest(key, known)}".lstrip("."))


def _readable(where: str, table: Mapping[str, Any], kind: Any, message: str) -> str:
    """msgspec's sentence with our key path, the value seen, and the words it could have been."""
    found = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*?)`)?", message)
    text, path = (found[1], found[2] or "") if found else (message, "")
    value: Any = table
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
            kind = _inner_kind(kind, part)
    words = [word for choice in _choices(kind) if typing.get_origin(choice) is Literal for word in get_args(choice)]
    hint = nearest(str(value), words) if words else ""
    seen = f" (value {value!r}){hint}" if path else ""
    name = ".".join(p for p in (where, path) if p) or "the experiment"
    text = text.replace("object", "table")
    return f"{name}: {text[:1].lower()}{text[1:]}{seen}"


def _inner_kind(kind: Any, field: str) -> Any:
    """The type of a field, of whichever dataclass among the choices has it."""
    for choice in _choices(kind):
        if dataclasses.is_dataclass(choice):
            with suppress(NameError):  # an annotation that only a type checker can resolve
                return typing.get_type_hints(choice).get(field)
    return None


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)


def import_object(where: str, target: str) -> Any:
    """`module:attr`, looked up among installed modules and in the current folder."""
    module_name, _, attr = target.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:  # ValueError: no module has this name, such as ""
        missing = getattr(error, "name", module_name)
        if missing != module_name.split(".")[0] and missing != module_name:
            raise SpecError(f"{where}: '{module_name}' is there, but it needs another module: {error}") from None
        raise SpecError(
            f"{where}: cannot import '{module_name}' ({error}); it must be installed or lie in {here}"
        ) from None
    except Exception as error:  # whatever a user's own module may do when it is run
        told = f"{type(error).__name__}: {error}"
        raise SpecError(f"{where}: importing '{module_name}' failed with {told}; mend that module first") from error
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

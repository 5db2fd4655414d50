"""Names in a spec and the objects they stand for: built-in names, `module:attr`, or the object itself."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from dragfl.config.convert import convert
from dragfl.errors import SpecError, nearest
from dragfl.own_code import OBJECT, PLAIN, import_object, is_function, name_of, named_errors, parameters_of, spec_name


def look_up(where: str, name: str, registry: Mapping[str, Any]) -> Any:
    """The class or function of a built-in name or a `module:attr`."""
    if name in registry:
        return registry[name]
    if ":" in name:
        return import_object(where, name)
    raise SpecError(f"{where}: unknown name '{name}'{nearest(name, registry)}")


Wrap = Callable[[str, Any, Mapping[str, Any], str], Any]  # (where, function, settings, name) -> the part made of it


def build(
    where: str,
    given: Any,
    registry: Mapping[str, Any],
    methods: tuple[str, ...],
    key: str = "name",
    wrap: Wrap | None = None,
) -> Any:
    """Build a part from a name, a table {name, settings...}, or (from Python) the object, class or function itself.

    `wrap` makes a part of a plain function, for the kinds that can be one.
    """
    settings, name = dict[str, Any](), ""
    if isinstance(given, str):
        given = {key: given}
    if isinstance(given, Mapping):
        settings = dict(given)
        named = settings.pop(key, None)
        if not isinstance(named, str) and not callable(named):
            raise SpecError(f"{where}: no {key} in {dict(given)!r}; give one of {', '.join(registry)} or module:attr")
        name = named if isinstance(named, str) else ""
        given = look_up(f"{where}.{key}", name, registry) if name else named
    if wrap is not None and is_function(given):
        given = wrap(where, given, _typed_settings(where, given, settings), name)
    elif settings or isinstance(given, type):
        given = _instantiate(where, given, settings)
    if isinstance(given, bool | int | float | list):
        raise SpecError(f"{where}: {given!r} is no {key}; give one of {', '.join(registry)} or module:attr")
    missing = [m for m in methods if not hasattr(given, m)]
    if missing:
        contract = "see the contract in dragfl.types" + (", or give a function" if wrap else "")
        raise SpecError(f"{where}: {name_of(type(given))} has no '{missing[0]}'; {contract}")
    return given


def _instantiate(where: str, found: Any, settings: dict[str, Any]) -> Any:
    """An instance of the class found; an object takes no settings."""
    if not isinstance(found, type):
        raise SpecError(f"{where}: '{name_of(found)}' is not a class, so it takes no settings; got {settings!r}")
    if dataclasses.is_dataclass(found):
        with named_errors(name_of(found)):
            return convert(where, settings, found)
    signature = inspect.signature(found)
    try:
        signature.bind(**settings)
    except TypeError as error:
        raise SpecError(f"{where}: {found.__name__}(**{settings!r}) failed: {error}") from None
    with named_errors(name_of(found)):
        return found(**settings)


def _typed_settings(where: str, function: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings given to a function, checked against its annotations, or the types of its defaults."""
    parameters = parameters_of(where, function)
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):  # an annotation that only a type checker can resolve; a callable object
        hints = {}
    kinds = {
        name: hints.get(name, Any if p.default is None or p.default is p.empty else type(p.default))
        for name, p in parameters.items()
    }
    known = {name: value for name, value in settings.items() if name in parameters}
    kind = dataclasses.make_dataclass("Settings", [(name, kinds[name]) for name in known])
    return {**settings, **{name: getattr(convert(where, known, kind), name) for name in known}}


def describe(part: Any, registry: Mapping[str, Any], key: str = "name") -> dict[str, Any]:
    """The inverse of `build`: a table with the name of the part and all its settings.

    The name is `object:NAME` if the table would not give the part back.
    """
    if hasattr(part, "described") and not isinstance(part, type):  # a part made of a function
        name, settings = part.described()
        return {key: spec_name(part.function, name), **_plain(without_none(settings))}
    made = dataclasses.is_dataclass(part) and not isinstance(part, type)
    settings = without_none(dataclasses.asdict(part)) if made else {}
    kind = part if hasattr(part, "__qualname__") else type(part)
    builtin = {value: name for name, value in registry.items()}
    if kind in builtin:
        return {key: builtin[kind], **settings}
    name = spec_name(kind)
    if kind is part:
        return {key: name}
    for given in [settings, _attributes(part)] if not name.startswith(OBJECT) else []:
        if _gives_back(part, kind, given):
            return {key: name, **given}
    return {key: spec_name(part), **_plain(settings)}


def _gives_back(part: Any, kind: type, settings: dict[str, Any]) -> bool:
    """Whether the class with these settings makes the same part."""
    try:
        return same(_instantiate("", kind, settings), part)
    except Exception:  # of the user's own constructor
        return False


def _attributes(part: Any) -> dict[str, Any]:
    """The attributes of an object, as arguments of its class; empty if they are no plain values."""
    held = getattr(part, "__dict__", {})
    return dict(held) if all(isinstance(value, PLAIN) for value in held.values()) else {}


def same(one: Any, other: Any) -> bool:
    """Whether two objects are equal in every field or attribute."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, str | int | float | bytes | frozenset | set):
        return bool(one == other)
    is_array = hasattr(one, "__array__")
    return not is_array and hasattr(one, "__dict__") and same(vars(one), vars(other))


def _plain(value: Any) -> Any:
    """A setting as TOML can write it: any other object by its name."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, PLAIN) else spec_name(value)


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Remove keys whose value is None, which TOML cannot write; an absent key means the same."""
    return {k: without_none(v) if isinstance(v, Mapping) else v for k, v in table.items() if v is not None}

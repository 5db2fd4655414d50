"""Names in a spec and the objects they stand for: built-in names, `module:attr`, or the object itself."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragfl.config.convert import convert
from dragfl.errors import SpecError, nearest


def import_object(where: str, target: str) -> Any:
    """Import `module:attr` from an installed module or the current folder."""
    module_name, _, attr = target.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:  # ValueError: the name is empty
        missing = getattr(error, "name", module_name)
        if missing != module_name.split(".")[0] and missing != module_name:
            raise SpecError(f"{where}: '{module_name}' imports a module that is not installed: {error}") from None
        raise SpecError(
            f"{where}: cannot import '{module_name}' ({error}); it must be installed or in the folder {here}"
        ) from None
    except Exception as error:  # the module is the user's own code
        failure = f"{type(error).__name__}: {error}"
        raise SpecError(f"{where}: importing '{module_name}' failed with {failure}; fix that module first") from error
    finally:
        sys.path.remove(here)
    try:
        return getattr(module, attr)
    except AttributeError:
        raise SpecError(f"{where}: module '{module_name}' has no '{attr}'{nearest(attr, vars(module))}") from None


def look_up(where: str, name: str, registry: Mapping[str, Any]) -> Any:
    """The class or function of a built-in name or a `module:attr`."""
    if name in registry:
        return registry[name]
    if ":" in name:
        return import_object(where, name)
    raise SpecError(f"{where}: unknown name '{name}'{nearest(name, registry)}")


def build(where: str, given: Any, registry: Mapping[str, Any], methods: tuple[str, ...], key: str = "name") -> Any:
    """Build a part from a name, a table {name, settings...}, or (from Python) the object itself."""
    if isinstance(given, str):
        given = {key: given}
    if isinstance(given, Mapping):
        settings = dict(given)
        if not isinstance(settings.get(key), str):
            raise SpecError(f"{where}: no {key} in {dict(given)!r}; give one of {', '.join(registry)} or module:attr")
        name = settings.pop(key)
        given = _instantiate(where, name, look_up(f"{where}.{key}", name, registry), settings)
    missing = [m for m in methods if not hasattr(given, m)]
    if missing:
        raise SpecError(f"{where}: {type(given).__name__} has no '{missing[0]}'; see the contract in dragfl.types")
    return given


def _instantiate(where: str, name: str, found: Any, settings: dict[str, Any]) -> Any:
    """An instance of the class found, or the object found, which takes no settings."""
    if not isinstance(found, type):
        if settings:
            raise SpecError(f"{where}: '{name}' is not a class, so it takes no settings; got {settings!r}")
        return found
    if dataclasses.is_dataclass(found):
        return convert(where, settings, found)
    try:
        return found(**settings)
    except TypeError as error:
        raise SpecError(f"{where}: {found.__name__}(**{settings!r}) failed: {error}") from None


def describe(part: Any, registry: Mapping[str, Any], key: str = "name") -> dict[str, Any]:
    """The inverse of `build`: a table with the name of the part and all its settings."""
    kind = part if callable(part) and hasattr(part, "__qualname__") else type(part)
    builtin = {value: name for name, value in registry.items()}
    name = builtin.get(kind, f"{kind.__module__}:{kind.__qualname__}")
    settings = dataclasses.asdict(part) if dataclasses.is_dataclass(part) and not isinstance(part, type) else {}
    return {key: name, **without_none(settings)}


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Remove keys whose value is None, which TOML cannot write; an absent key means the same."""
    return {k: without_none(v) if isinstance(v, Mapping) else v for k, v in table.items() if v is not None}

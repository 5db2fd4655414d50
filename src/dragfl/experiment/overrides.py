"""`key=value` on the command line: a change to an experiment's tables before they are checked."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from typing import Any

from dragfl.algorithms import PARTS, PRESETS, expand
from dragfl.errors import SpecError

NAME_TURN, PLAIN_TURN, PART_TURN, SETTING_TURN = range(4)


def override(tables: dict[str, Any], overrides: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """Apply `a.b=value`, each value a TOML literal or a bare word."""
    return replace_values(tables, [parse_override(text) for text in overrides])


def replace_values(tables: dict[str, Any], changes: list[tuple[list[str], Any]]) -> dict[str, Any]:
    """The tables with the value at each path replaced.

    Setting `algorithm.name` replaces the whole table by the preset's defaults plus its `[algorithms.NAME]` table;
    setting a part (`algorithm.server=momentum`) replaces that part and leaves the others with their settings.
    """
    tables = copy.copy(tables)
    # The name first: it replaces the table that the others change. Parts last, each before its own settings.
    for path, value in sorted(changes, key=lambda item: _turn(item[0])):
        if path == ["algorithm", "name"]:
            tables["algorithm"] = {"name": value}
            tables["algorithm"] = algorithm_table(tables)
            continue
        if _turn(path) >= PART_TURN:
            tables["algorithm"] = _spelled_out(tables, path, [p for p, _ in changes])
        place = tables
        for key in path[:-1]:
            inner = place.get(key, {})
            if isinstance(inner, str) and key in PARTS:
                inner = {"name": inner}
            if not isinstance(inner, Mapping):
                raise SpecError(f"{'.'.join(path)}: '{key}' is not a table but {inner!r}; set it as a whole")
            place[key] = dict(inner)
            place = place[key]
        place[path[-1]] = value
    return tables


def _turn(path: list[str]) -> int:
    """When an override is applied."""
    if path == ["algorithm", "name"]:
        return NAME_TURN
    if path[0] != "algorithm" or len(path) == 1 or path[1] not in PARTS:
        return PLAIN_TURN
    return PART_TURN if path[2:] in ([], ["name"]) else SETTING_TURN


def _spelled_out(tables: Mapping[str, Any], path: list[str], others: list[list[str]]) -> dict[str, Any]:
    """The `[algorithm]` table with all parts spelled out, ready for one of them to be changed at `path`."""
    table = algorithm_table(tables)
    expanded = expand(table)
    if _turn(path) == SETTING_TURN:
        return expanded
    part = path[1]
    flat = PRESETS[table.get("name") or "fedavg"].flat() if table.get("name", "fedavg") in PRESETS else {}
    for key in (other[1] for other in others if other[0] == "algorithm" and len(other) == 2):
        for owner, setting in flat.get(key, []):
            if owner == part:
                raise SpecError(
                    f"algorithm.{key}: is a setting of the {part} that algorithm.{part} replaces; "
                    f"write algorithm.{part}.{setting} instead"
                )
    return {name: {} if name == part else value for name, value in expanded.items() if name != "name"}


def parse_override(text: str) -> tuple[list[str], Any]:
    """`a.b=1` -> (["a", "b"], 1)."""
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise SpecError(f"override {text!r}: write it as key=value, for example clients.lr=0.05")
    try:
        return path, tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        word = value.strip()
        if word and not any(c in word for c in "\"'[]{}=\n"):
            return path, word
        raise SpecError(f"override {text!r}: {value!r} is not a TOML value; quote strings that hold brackets") from None


def algorithm_table(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The `[algorithm]` table; one that is nothing but a name takes its settings from `[algorithms.NAME]`."""
    table, others = tables.get("algorithm", {}), tables.get("algorithms", {})
    if not isinstance(table, Mapping) or not isinstance(others, Mapping):
        raise SpecError(f"algorithm: expected tables, got {table!r} and {others!r}; write [algorithm] and its keys")
    name = table.get("name")
    settings = others.get(name, {}) if isinstance(name, str) and table.keys() == {"name"} else {}
    return {**table, **(settings if isinstance(settings, Mapping) else {})}

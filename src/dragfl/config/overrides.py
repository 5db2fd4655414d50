"""`key=value` on the command line: a change to an experiment's tables before they are checked."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dragfl.algorithms import PARTS, PRESETS, expand
from dragfl.config.tables import Attackers
from dragfl.errors import SpecError

NAMED = (["algorithm", "name"], ["attack", "name"])
NO_ATTACK = "none"
ATTACKER_KEYS = frozenset(f.name for f in fields(Attackers))  # of [attack], whichever the attack
NAME_TURN, PLAIN_TURN, PART_TURN, SETTING_TURN = range(4)


def override(tables: dict[str, Any], overrides: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """Apply `a.b=value`, each value a TOML literal or a bare word."""
    return replace_values(tables, [parse_override(text) for text in overrides])


def replace_values(tables: dict[str, Any], changes: list[tuple[list[str], Any]]) -> dict[str, Any]:
    """The tables with the value at each path replaced.

    Setting `algorithm.name` replaces the whole table by the preset's defaults plus its `[algorithms.NAME]` table;
    setting a part (`algorithm.server=momentum`) replaces that part and leaves the others with their settings. Setting
    `attack.name` replaces the attack's own settings by its `[attacks.NAME]` table; who attacks stays as it is.
    """
    tables = copy.copy(tables)
    # The name first: it replaces the table that the others change. Parts last, each before its own settings.
    for path, value in sorted(changes, key=lambda item: _turn(item[0])):
        if path == ["algorithm", "name"]:
            tables["algorithm"] = {"name": value}
            tables["algorithm"] = algorithm_table(tables)
            continue
        if path == ["attack", "name"]:
            who = {k: v for k, v in _inner(tables, path, 0).items() if k in ATTACKER_KEYS}
            tables["attack"] = {"name": value, **who}
            tables["attack"] = attack_table(tables)
            continue
        if _turn(path) >= PART_TURN:
            tables["algorithm"] = _spelled_out(tables, path, [p for p, _ in changes])
        place = tables
        for i, key in enumerate(path[:-1]):
            place[key] = _inner(place, path, i)
            place = place[key]
        place[path[-1]] = value
    return tables


def _inner(place: Mapping[str, Any], path: list[str], i: int) -> dict[str, Any]:
    """A copy of the table that the i-th word of a path names; empty where there is none yet."""
    inner = place.get(path[i], {})
    if isinstance(inner, str) and path[i] in PARTS:
        inner = {"name": inner}
    if not isinstance(inner, Mapping):
        raise SpecError(f"{'.'.join(path)}: '{path[i]}' is not a table but {inner!r}; set it as a whole")
    return dict(inner)


def _turn(path: list[str]) -> int:
    """When an override is applied."""
    if path in NAMED:
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
    return _with_settings(tables, "algorithm", frozenset())


def attack_table(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The `[attack]` table; one that has no settings of its own takes them from `[attacks.NAME]`."""
    return _with_settings(tables, "attack", ATTACKER_KEYS)


def _with_settings(tables: Mapping[str, Any], key: str, beside: frozenset[str]) -> dict[str, Any]:
    table, others = tables.get(key, {}), tables.get(f"{key}s", {})
    if not isinstance(table, Mapping) or not isinstance(others, Mapping):
        raise SpecError(f"{key}: expected tables, got {table!r} and {others!r}; write [{key}] and its keys")
    name = table.get("name")
    settings = others.get(name, {}) if isinstance(name, str) and table.keys() - beside == {"name"} else {}
    return {**table, **(settings if isinstance(settings, Mapping) else {})}

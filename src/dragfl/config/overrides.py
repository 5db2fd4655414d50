"""`key=value` on the command line: a change to an experiment's tables before they are checked."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from enum import IntEnum
from typing import Any

from dragfl.algorithms import PARTS, PRESETS, expand
from dragfl.config.migrate import refuse_old_keys
from dragfl.config.tables import Attackers
from dragfl.errors import SpecError

NO_ATTACK = "none"
ATTACKER_KEYS = frozenset(f.name for f in fields(Attackers))  # of [attack], for every attack
EXCEEDS_F = "exceeds_f"  # of [attack] in a resolved spec: computed from the other settings
KEPT_KEYS = {"algorithm": frozenset[str](), "attack": ATTACKER_KEYS}  # when the table gets another name


class Order(IntEnum):
    """The order in which overrides are applied, whatever their order on the command line."""

    NAME = 0  # algorithm.name and attack.name replace the table that the others change
    PLAIN = 1
    PART = 2  # algorithm.server replaces the part whose settings follow
    PART_SETTING = 3


def override(tables: dict[str, Any], overrides: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """Apply `a.b=value` overrides; a value is a TOML literal or a bare word."""
    return replace_values(tables, [parse_override(text) for text in overrides])


def replace_values(tables: dict[str, Any], changes: list[tuple[list[str], Any]]) -> dict[str, Any]:
    """The tables with the value at each path replaced.

    Setting `algorithm.name` replaces the whole table by the preset's defaults and its `[algorithms.NAME]` table.
    Setting a part (`algorithm.server=momentum`) replaces that part; the others keep their settings. Setting
    `attack.name` replaces the attack's own settings by its `[attacks.NAME]` table; the attackers stay. A computed
    value is removed.
    """
    tables = copy.copy(tables)
    if changes and isinstance(tables.get("attack"), Mapping):
        tables["attack"] = {k: v for k, v in tables["attack"].items() if k != EXCEEDS_F}
    for path, value in sorted(changes, key=lambda change: _order(change[0])):
        if _order(path) == Order.NAME:
            key, before = path[0], tables.get(path[0])
            kept = {k: before[k] for k in before if k in KEPT_KEYS[key]} if isinstance(before, Mapping) else {}
            tables[key] = with_named_settings({**tables, key: {"name": value, **kept}}, key)
            continue
        if _order(path) >= Order.PART:
            tables["algorithm"] = _spelled_out(tables, path, [p for p, _ in changes])
        place = tables
        for i, key in enumerate(path[:-1]):
            place[key] = _inner(place, path, i)
            place = place[key]
        place[path[-1]] = value
    return tables


def _inner(place: Mapping[str, Any], path: list[str], i: int) -> dict[str, Any]:
    """A copy of the table at the i-th key of a path; empty if there is none yet."""
    inner = place.get(path[i], {})
    if isinstance(inner, str) and path[i] in (*PARTS, "model"):
        inner = {"name": inner}
    if not isinstance(inner, Mapping):
        raise SpecError(f"{'.'.join(path)}: '{path[i]}' is not a table but {inner!r}; set it as a whole")
    return dict(inner)


def _order(path: list[str]) -> Order:
    if path in (["algorithm", "name"], ["attack", "name"]):
        return Order.NAME
    if path[0] != "algorithm" or len(path) == 1 or path[1] not in PARTS:
        return Order.PLAIN
    return Order.PART if path[2:] in ([], ["name"]) else Order.PART_SETTING


def _spelled_out(tables: Mapping[str, Any], path: list[str], others: list[list[str]]) -> dict[str, Any]:
    """The `[algorithm]` table with all parts spelled out, ready for one of them to be changed at `path`."""
    refuse_old_keys(tables)
    table = with_named_settings(tables, "algorithm")
    if ":" in str(table.get("name")) and not PARTS.keys() <= table.keys():  # the user's own, which is built later
        return table
    expanded = expand(table)
    if _order(path) == Order.PART_SETTING:
        return expanded
    part = path[1]
    name = table.get("name", "fedavg")
    flat = PRESETS[name].flat() if name in PRESETS else {}
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
        plain = word.partition("?")[0]  # the settings of `text:PATH?window=40` have equals signs
        if plain and not any(c in plain for c in "\"'[]{}=\n"):
            return path, word
        raise SpecError(f"override {text!r}: {value!r} is not a TOML value; quote strings that hold brackets") from None


def with_named_settings(tables: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The table `[algorithm]` or `[attack]`; one without settings of its own takes those of `[KEYs.NAME]`.

    The number of attackers is no setting of an attack.
    """
    table, named = tables.get(key, {}), tables.get(f"{key}s", {})
    if not isinstance(table, Mapping) or not isinstance(named, Mapping):
        raise SpecError(f"{key}: expected tables, got {table!r} and {named!r}; write [{key}] and its keys")
    name = table.get("name")
    settings = named.get(name, {}) if isinstance(name, str) and table.keys() - KEPT_KEYS[key] == {"name"} else {}
    return {**table, **(settings if isinstance(settings, Mapping) else {})}

"""A JSON schema of the spec, for editors: generated from the dataclasses, so a new key or part needs no entry here."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dragfl.algorithms import PARTS, PRESETS, Preset
from dragfl.attacks import ATTACKS
from dragfl.config.build_parts import Model
from dragfl.config.docstrings import symbols
from dragfl.config.spec import PLAIN_TABLES
from dragfl.config.tables import Attackers, Clients, Data, Root, Top
from dragfl.data import DATASETS
from dragfl.data.partitions import PARTITIONS
from dragfl.models import MODELS
from dragfl.schedules import Schedule

Schema = dict[str, Any]
OWN = "[:+]"  # `module:attr`, `text:PATH`, or a chain of aggregates: any name with one of these
NO_ATTACK = "none"


def experiment_schema() -> Schema:
    """The schema of an experiment. It accepts every valid spec; errors that need several keys are left to `load`."""
    presets = {name: _flat(preset) for name, preset in PRESETS.items()}
    parts = {part: {"$ref": f"#/$defs/{part}"} for part in PARTS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dragfl experiment",
        "type": "object",
        "properties": {
            **_fields(Top),
            "data": _table(_fields(Data) | {"dataset": _names(DATASETS), "partition": _part(PARTITIONS, "kind")}),
            "root": _table(_fields(Root)),
            "clients": _table(_fields(Clients)),
            "algorithm": _named(PRESETS, "name", parts | _merged(presets)),
            "algorithms": _open_table({name: _open_table(parts | settings) for name, settings in presets.items()}),
            "attack": _named([*ATTACKS, NO_ATTACK], "name", _fields(Attackers) | _settings(ATTACKS) | _EXCEEDS_F),
            "attacks": _open_table({name: _open_table(_fields(part)) for name, part in ATTACKS.items()}),
            "model": {"anyOf": [_names(MODELS), _named(MODELS, "name", _model_options() | _settings(MODELS))]},
            **{key: _table(_fields(kind)) for key, kind in PLAIN_TABLES.items()},
        },
        "additionalProperties": False,
        "$defs": {"Schedule": _table(_fields(Schedule)), **{part: _part(known) for part, known in PARTS.items()}},
    }


_EXCEEDS_F = {"exceeds_f": {"type": "number", "description": "computed; of a resolved spec"}}


def override_keys() -> list[str]:
    """Every key that `key=value` can set, such as `clients.lr`; of parts only those that all have."""
    tables = {"data": Data, "root": Root, "clients": Clients, "attack": Attackers, **PLAIN_TABLES}
    keys = [f.name for f in dataclasses.fields(Top)]
    keys += [f"{table}.{f.name}" for table, kind in tables.items() for f in dataclasses.fields(kind)]
    named = ["data.partition.kind", "attack.name", "model.name", "algorithm.name", *(f"algorithm.{p}" for p in PARTS)]
    return sorted({*keys, *named, *(f"algorithm.{key}" for preset in PRESETS.values() for key in preset.flat())})


def _table(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _open_table(properties: Schema) -> Schema:
    """A table that may hold other keys, the settings of parts of your own."""
    return {"type": "object", "properties": properties}


def _names(known: Iterable[str]) -> Schema:
    return {"anyOf": [{"enum": list(known)}, {"type": "string", "pattern": OWN}]}


def _named(known: Iterable[str], key: str, properties: Schema) -> Schema:
    """A table with a name and the settings of what it names."""
    return _open_table({key: _names(known), **properties})


def _part(registry: Mapping[str, Any], key: str = "name") -> Schema:
    """A part: its name alone, or a table."""
    table = _named(registry, key, _settings(registry))
    return {"anyOf": [_names(registry), {**table, "required": [key]}]}


def _settings(registry: Mapping[str, Any]) -> Schema:
    return _merged({name: _fields(part) for name, part in registry.items()})


def _merged(settings: Mapping[str, Schema]) -> Schema:
    """The settings of several parts together: where they differ in type, any of the types."""
    merged: dict[str, list[Schema]] = {}
    owners: dict[str, list[str]] = {}
    for name, properties in settings.items():
        for key, value in properties.items():
            kinds = merged.setdefault(key, [])
            kind = {k: v for k, v in value.items() if k not in ("description", "default")}
            kinds += [kind] if kind not in kinds else []
            owners.setdefault(key, []).append(name)
    return {
        key: {**(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}), "description": f"of {', '.join(owners[key])}"}
        for key, kinds in merged.items()
    }


def _flat(preset: Preset) -> Schema:
    """The settings of a preset."""
    fields = {part: _fields(PARTS[part][getattr(preset, part)]) for part in PARTS}
    return {flat: fields[places[0][0]][places[0][1]] for flat, places in preset.flat().items()}


def _model_options() -> Schema:
    return {key: value for key, value in _fields(Model).items() if key in ("double_softmax", "buffers")}


@functools.cache
def _fields(part: Any) -> Schema:
    """Setting -> schema of a dataclass, or of the parameters of a function that have a default."""
    if not dataclasses.is_dataclass(part):
        parameters = inspect.signature(part).parameters.items()
        defaults = {name: p.default for name, p in parameters if p.default is not p.empty}
        return {name: {**msgspec.json.schema(type(value)), "default": value} for name, value in defaults.items()}
    described = symbols(part) or comments(part)
    (reference,), found = msgspec.json.schema_components([part], ref_template="#/$defs/{name}")
    schema = found[reference["$ref"].rpartition("/")[2]]
    return {
        name: _without_null(value) | ({"description": _plain(described[name])} if name in described else {})
        for name, value in schema["properties"].items()
    }


def _without_null(value: Schema) -> Schema:
    """TOML has no null: a key that may be None is left out instead."""
    kinds = [kind for kind in value.get("anyOf", []) if kind != {"type": "null"}]
    rest = {k: v for k, v in value.items() if k != "anyOf" and not (k == "default" and v is None)}
    return rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})


def _plain(text: str) -> str:
    """The text without Markdown links."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


def comments(kind: Any) -> dict[str, str]:
    """Field -> the comment after it in the source of a dataclass."""
    return dict(re.findall(r"^    (\w+): .*?  # (.+)$", inspect.getsource(kind), re.MULTILINE))

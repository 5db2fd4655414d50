"""Short labels that distinguish runs: "drag", "br_drag · sign_flip", "drag · c=0.5".

A label is the algorithm, then the attack where runs differ in it, then as few settings as make the label unique. It
is built from the names and settings in the spec alone, so a new algorithm or attack needs no entry here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Spec = Mapping[str, Any]
Flat = dict[str, Any]

SEPARATOR = " · "
NOT_SET = "—"
NO_ATTACK = "no attack"

# Settings that readers look for first; a key that is not listed comes after them, in alphabetical order.
_ORDER = (
    "data.dataset",
    "data.partition.kind",
    "data.partition",
    "model.name",
    "algorithm.aggregate",
    "algorithm.correction",
    "algorithm.server",
    "algorithm",
    "attack.attackers",
    "attack",
    "clients",
    "data",
    "root",
    "model",
    "rounds",
)

FINGERPRINT = "fingerprint"  # a table of digests that distinguish runs with the same settings
_VALUE_ONLY = ("name", "kind", "dataset", "folder")  # "cifar10" is as clear as "dataset=cifar10"


def flatten(spec: Spec, prefix: str = "") -> Flat:
    """Nested tables as dotted keys: {"clients.lr": 0.1, ...}."""
    flat: Flat = {}
    for key, value in spec.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def format_value(value: Any) -> str:
    """A setting as text: strings without quotes, true and false as in TOML."""
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def short_name(name: str) -> str:
    """A registry name as it is; `module:Name` and chains of such without their modules."""
    return "+".join(part.rsplit(":", 1)[-1] for part in name.split("+"))


def algorithm_name(spec: Spec) -> str:
    return short_name(str(spec.get("algorithm", {}).get("name", "unnamed")))


def attack_name(spec: Spec) -> str | None:
    """The name of the attack, or None where there are no attackers."""
    table = spec.get("attack") or {}
    return short_name(str(table["name"])) if table.get("name") and table.get("attackers", 1) else None


def make_labels(specs: Sequence[Spec]) -> list[tuple[str, str, str]]:
    """(algorithm, attack, settings) of each spec: unique together, and no longer than needed.

    An attack that all specs share is left out; where only some have an attack, the others are labelled "no attack".
    """
    attacks = [attack_name(spec) or NO_ATTACK for spec in specs]
    if len(set(attacks)) == 1 and (len(specs) > 1 or attacks == [NO_ATTACK]):
        attacks = [""] * len(specs)
    heads = [(algorithm_name(spec), attack) for spec, attack in zip(specs, attacks, strict=True)]
    flats = [flatten(spec) for spec in specs]
    settings: dict[int, list[str]] = {}
    for head in dict.fromkeys(heads):
        settings |= _distinguish(flats, [i for i, other in enumerate(heads) if other == head])
    return [(*head, SEPARATOR.join(settings[i])) for i, head in enumerate(heads)]


def _distinguish(flats: Sequence[Flat], members: Sequence[int]) -> dict[int, list[str]]:
    """The settings that distinguish each member: the first one that splits them, then recursively within the parts."""
    keys = {key for i in members for key in flats[i]} - {"name", "folder", "attack.exceeds_f"}
    for key in [*sorted(keys, key=_rank), "name", "folder"] if len(members) > 1 else []:
        parts: dict[str, list[int]] = {}
        for i in members:
            parts.setdefault(format_value(flats[i].get(key)), []).append(i)
        if len(parts) > 1:
            rest = {i: found for part in parts.values() for i, found in _distinguish(flats, part).items()}
            return {i: [_format_setting(key, flats[i].get(key)), *rest[i]] for i in members}
    return {i: [] for i in members}


def _rank(key: str) -> tuple[int, str]:
    if key == "seed" or key.startswith(f"{FINGERPRINT}."):  # a group has several seeds, so digests come first
        return len(_ORDER) + (2 if key == "seed" else 1), key
    rank = next((i for i, prefix in enumerate(_ORDER) if key == prefix or key.startswith(prefix + ".")), len(_ORDER))
    return rank, key


def _format_setting(key: str, value: Any) -> str:
    """`c=0.5`, `server lr=1.0`, `cifar10`; a missing setting is `no c`."""
    *parents, last = key.split(".")
    if parents == [FINGERPRINT]:
        return f"{last} {value or 'unknown'}"
    if last in _VALUE_ONLY:
        return format_value(value) if value is not None else f"no {parents[-1] if parents else last}"
    short = f"server {last}" if "server" in parents else last
    return f"no {short}" if value is None else f"{short}={format_value(value)}"

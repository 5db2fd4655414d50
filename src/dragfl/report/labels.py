"""Short labels that distinguish runs: "drag", "br_drag · sign_flip", "my-run · drag · c=0.5".

A label is the name that the user gave where names differ, the algorithm unless that name contains it, the attack where
runs differ in it, then as few settings as make the rest unique. It is built from the names and settings in the spec
alone, so a new algorithm or attack needs no entry here.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dragfl.config.tables import Top
from dragfl.data.partitions import PARTITIONS

Spec = Mapping[str, Any]
Flat = dict[str, Any]

SEPARATOR = " · "
NOT_SET = "—"
NO_ATTACK = "no attack"

# Settings that readers look for first; a key that is not listed comes after them, in alphabetical order.
_ORDER = (
    "data.dataset",
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
_VALUE_ONLY = ("name", "partition", "dataset", "folder")  # "cifar10" is as clear as "dataset=cifar10"


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


def partition_text(spec: Spec) -> str:
    """`dirichlet_class a=0.3`: the kind and the settings that are not its defaults."""
    table = spec.get("data", {}).get("partition", {})
    kind = str(table.get("kind", "iid"))
    known: Any = PARTITIONS.get(kind)
    defaults = {field.name: field.default for field in dataclasses.fields(known)} if known else {}
    settings = [
        f"{key}={format_value(value)}"
        for key, value in flatten(table).items()
        if key != "kind" and not (key in defaults and value == defaults[key])
    ]
    return " ".join([short_name(kind), *settings])


def given_name(names: Sequence[str], seeds: Sequence[int]) -> str:
    """The name that the user gave to runs that differ in their seed; "" if none was given.

    The seed at the end of a name is left out: `mine-seed0` and `mine-seed1`, or `mine-0` and `mine-1`, are `mine`.
    """
    word = "(?:seed|s)?" if len(names) > 1 else "(?:seed|s)"
    stems = [
        re.sub(rf"[-_ .]{word}[-_=]?{seed}$", "", name, flags=re.IGNORECASE)
        for name, seed in zip(names, seeds, strict=True)
    ]
    found = list(dict.fromkeys(stems if len(set(stems)) == 1 else names))
    if all(re.fullmatch(rf"{Top.name}(-\d+)?", name) for name in found):
        return ""
    return ", ".join(found) if len(found) < 3 else f"{found[0]} and {len(found) - 1} more"


class Label(NamedTuple):
    """The parts of a label; a part that all labels share, or that is not needed, is empty."""

    algorithm: str
    attack: str
    settings: str
    name: str = ""  # that the user gave
    name_has_algorithm: bool = False  # so the algorithm is not repeated

    def without_attack(self) -> str:
        """Unique among the labels with the same attack."""
        return str(self._replace(attack=""))

    def __str__(self) -> str:
        algorithm = "" if self.name_has_algorithm else self.algorithm
        settings = (text for text in self.settings.split(SEPARATOR) if text != self.name)  # the name is not repeated
        return SEPARATOR.join(filter(None, (self.name, algorithm, self.attack, *settings)))


def make_labels(specs: Sequence[Spec], names: Sequence[str]) -> list[Label]:
    """The label of each spec, and of the name given to it: unique, and no longer than needed.

    A name or an attack that all specs share is left out; where only some have an attack, the others are labelled
    "no attack".
    """
    attacks = [attack_name(spec) or NO_ATTACK for spec in specs]
    if len(set(attacks)) == 1 and (len(specs) > 1 or attacks == [NO_ATTACK]):
        attacks = [""] * len(specs)
    if len(set(names)) == 1 and len(specs) > 1:
        names = [""] * len(specs)
    heads = [(algorithm_name(spec), attack) for spec, attack in zip(specs, attacks, strict=True)]
    flats = [_flatten_spec(spec) | ({"name": name} if name else {}) for spec, name in zip(specs, names, strict=True)]
    settings: dict[int, list[str]] = {}
    for head in dict.fromkeys(heads):
        settings |= _distinguish(flats, [i for i, other in enumerate(heads) if other == head])
    algorithms = {name: {head[0] for head, other in zip(heads, names, strict=True) if other == name} for name in names}
    return [
        Label(*head, SEPARATOR.join(settings[i]), name, len(algorithms[name]) == 1 and _is_word(head[0], name))
        for i, (name, head) in enumerate(zip(names, heads, strict=True))
    ]


def _is_word(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w+]){re.escape(word)}(?![\w+])", text) is not None


def _flatten_spec(spec: Spec) -> Flat:
    """The settings by dotted key; a partition is one of them, with all its settings."""
    flat = {key: value for key, value in flatten(spec).items() if not key.startswith("data.partition.")}
    return flat | {"data.partition": partition_text(spec)}


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

"""Short names that tell runs apart: "DRAG", "BR-DRAG · sign_flip", "DRAG · c=0.5".

A label is the algorithm, then the attack where runs differ in it, then as few settings as make it unique.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Spec = Mapping[str, Any]
Flat = dict[str, Any]

SEPARATOR = " · "
NOT_SET = "—"

PRETTY = {
    "drag": "DRAG",
    "br_drag": "BR-DRAG",
    "fedavg": "FedAvg",
    "fedavgm": "FedAvgM",
    "fedprox": "FedProx",
    "fltrust": "FLTrust",
    "scaffold": "SCAFFOLD",
    "adabest": "AdaBest",
    "feddyn": "FedDyn",
    "feddc": "FedDC",
    "fedcm": "FedCM",
    "fedexp": "FedExP",
    "fednova": "FedNova",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "fedadagrad": "FedAdagrad",
    "mime": "Mime",
    "mimelite": "MimeLite",
    "krum": "Krum",
    "multi_krum": "Multi-Krum",
    "median": "Median",
    "trimmed_mean": "Trimmed mean",
    "geometric_median": "Geometric median",
    "bulyan": "Bulyan",
    "centered_clipping": "Centered clipping",
    "norm_clipping": "Norm clipping",
    "dnc": "DnC",
    "sign_guard": "SignGuard",
    "fools_gold": "FoolsGold",
    "flame": "FLAME",
    "rlr": "RLR",
    "mea_med": "MeaMed",
    "mda": "MDA",
    "caf": "CAF",
}

# The settings people think of first come first; a key not listed comes after, by name.
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

_VALUE_ALONE = ("name", "kind", "dataset", "folder")  # "cifar10" says as much as "dataset=cifar10"


def flatten(spec: Spec, prefix: str = "") -> Flat:
    """Nested tables as dotted keys: {"clients.lr": 0.1, ...}."""
    flat: Flat = {}
    for key, value in spec.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def text(value: Any) -> str:
    """A setting as it is read aloud: no quotes, true and false as in TOML."""
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def algorithm(spec: Spec) -> str:
    """The algorithm's printed name; a composition without a preset is named by its parts."""
    table = spec.get("algorithm", {})
    name = str(table.get("name", "custom"))
    if name != "custom":
        return PRETTY.get(name, name.rsplit(":", 1)[-1])
    parts = [_part(table.get(key)) for key in ("correction", "aggregate", "server")]
    return " + ".join(p for p in parts if p not in ("", "none", "sgd")) or "custom"


def _part(value: Any) -> str:
    if isinstance(value, Mapping):
        return "+".join(map(str, value["chain"])) if "chain" in value else str(value.get("name", ""))
    return "" if value is None else str(value)


def attack(spec: Spec) -> str | None:
    """The name of the attack, or None where nobody attacks."""
    table = spec.get("attack") or {}
    return str(table["name"]) if table.get("name") and table.get("attackers", 1) else None


def labels(specs: Sequence[Spec]) -> list[tuple[str, str, str]]:
    """(algorithm, attack, settings) of each spec: together unique, and no longer than needed.

    An attack that several specs share is left out, since it tells nothing apart; where only some are attacked, the
    others say "no attack".
    """
    attacks = [attack(spec) or "no attack" for spec in specs]
    if len(set(attacks)) == 1 and (len(specs) > 1 or attacks == ["no attack"]):
        attacks = [""] * len(specs)
    heads = [(algorithm(spec), name) for spec, name in zip(specs, attacks, strict=True)]
    flats = [flatten(spec) for spec in specs]
    tails: dict[int, list[str]] = {}
    for head in dict.fromkeys(heads):
        tails |= _tell_apart(flats, [i for i, other in enumerate(heads) if other == head])
    return [(*head, SEPARATOR.join(tails[i])) for i, head in enumerate(heads)]


def _tell_apart(flats: Sequence[Flat], members: Sequence[int]) -> dict[int, list[str]]:
    """For each member the settings that tell it from the others: the first that splits them, then on within parts."""
    keys = {key for i in members for key in flats[i]} - {"name", "folder"}
    for key in [*sorted(keys, key=_interest), "name", "folder"] if len(members) > 1 else []:
        parts: dict[str, list[int]] = {}
        for i in members:
            parts.setdefault(text(flats[i].get(key)), []).append(i)
        if len(parts) > 1:
            told = {i: tail for part in parts.values() for i, tail in _tell_apart(flats, part).items()}
            return {i: [_setting(key, flats[i].get(key)), *told[i]] for i in members}
    return {i: [] for i in members}


def _interest(key: str) -> tuple[int, str]:
    rank = next((i for i, prefix in enumerate(_ORDER) if key == prefix or key.startswith(prefix + ".")), len(_ORDER))
    return rank, key


def _setting(key: str, value: Any) -> str:
    """`c=0.5`, `server lr=1.0`, `cifar10`; a setting that is not there is `no c`."""
    *parents, last = key.split(".")
    if last in _VALUE_ALONE:
        return text(value) if value is not None else f"no {parents[-1] if parents else last}"
    short = f"server {last}" if "server" in parents else last
    return f"no {short}" if value is None else f"{short}={text(value)}"

"""Which settings decide the result of a run, defined once for all that compare runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Labels, computed values, files, and how the work is distributed: none of them changes a number of the result.
NOT_IN_RESULT = (
    "name",
    "algorithm.name",
    "attack.exceeds_f",
    "checkpoint",
    "state",
    "engine.workers",
    "engine.executor",
    "flower.deadline",
    "flower.min_nodes",
    "flower.wait",
    "flower.secure",
)


# Settings that older runs do not have, and the value that is the same as their absence.
ABSENT: dict[str, Any] = {
    "clients.momentum": 0.0,
    "clients.weight_decay": 0.0,
    "clients.augment": "none",
    "clients.availability": 1.0,
    "flower.min_replies": 1,
    "flower.data": "partition",
}


def comparable(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a resolved spec without the settings that do not change its result.

    The name of an algorithm is only a label there, since the three parts are spelled out.
    """
    plain: dict[str, Any] = json.loads(json.dumps(tables))  # tuples and lists compare equal, and it is a copy
    for key in NOT_IN_RESULT:
        table, _, setting = key.rpartition(".")
        (plain.get(table, {}) if table else plain).pop(setting, None)
    for key, default in ABSENT.items():
        table, _, setting = key.rpartition(".")
        if plain.get(table, {}).get(setting) == default:
            del plain[table][setting]
    if not plain.get("flower", True):
        del plain["flower"]
    evaluation = plain.get("evaluation", {})
    for key in _unused_evaluation_settings(evaluation):
        evaluation.pop(key, None)
    if plain.get("algorithm", {}).get("correction", {}).get("name") == "none":  # it sends no extras
        plain.get("attack", {}).pop("forge_extras", None)
    return plain


def _unused_evaluation_settings(evaluation: Mapping[str, Any]) -> set[str]:
    """Settings without effect; a run of a version before these settings is the same as one with their defaults."""
    used = {"last": set[str](), "average": {"iterate", "window"}, "ema": {"iterate", "decay"}, "own": {"iterate"}}
    unused = {"iterate", "window", "decay"} - used[evaluation.get("iterate", "last")]
    return unused if evaluation.get("validation") else unused | {"validation", "target_on"}


def same_result(given: Mapping[str, Any], resolved: Mapping[str, Any]) -> bool:
    """Whether a stored run is of the given experiment."""
    return not differing_settings(given, resolved)


def differing_settings(given: Mapping[str, Any], resolved: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (the given value, that of a stored run) of every setting that makes another experiment.

    The first start of a run chooses the block size and the trainer; where the experiment leaves them open, any choice
    is the same experiment. A Python object may have had a name when the run was stored; its code is compared elsewhere.
    """
    mine, theirs = comparable(given), comparable(resolved)
    if "block" not in mine.get("engine", {}):
        theirs.get("engine", {}).pop("block", None)
    if mine.get("engine", {}).get("trainer") == "auto":
        theirs.setdefault("engine", {})["trainer"] = "auto"
    one, other = _flatten(mine), _flatten(theirs)
    pairs = {key: (one.get(key), other.get(key)) for key in {**one, **other}}
    return {key: (a, b) for key, (a, b) in pairs.items() if a != b and not _same_object(a, b)}


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _same_object(one: Any, other: Any) -> bool:
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    kinds, names = zip(*(name.partition(":")[::2] for name in (one, other)), strict=True)
    return "object" in kinds and names[0] == names[1]

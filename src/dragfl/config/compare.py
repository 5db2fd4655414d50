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
)


# Settings that older runs do not have, and the value that is the same as their absence.
ABSENT: dict[str, Any] = {
    "clients.momentum": 0.0,
    "clients.weight_decay": 0.0,
    "clients.augment": "none",
    "clients.availability": 1.0,
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
    """Whether a stored run is of the given experiment.

    The first start of a run chooses the block size and the trainer; where the experiment leaves them open, any choice
    is the same experiment.
    """
    mine, theirs = comparable(given), comparable(resolved)
    if "block" not in mine.get("engine", {}):
        theirs.get("engine", {}).pop("block", None)
    if mine.get("engine", {}).get("trainer") == "auto":
        theirs.setdefault("engine", {})["trainer"] = "auto"
    return mine == theirs

"""The named algorithms: a paper's name -> correction x aggregate x server step, and what a spec may set.

A preset takes the settings of its parts under flat names (`c`, `alpha`, `server_lr`); a composition names the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dragfl.aggregates import AGGREGATES
from dragfl.corrections import CORRECTIONS
from dragfl.errors import SpecError, nearest
from dragfl.server_steps import SERVER_STEPS

PARTS: dict[str, dict[str, Any]] = {"correction": CORRECTIONS, "aggregate": AGGREGATES, "server": SERVER_STEPS}
DEFAULTS = {"correction": "none", "aggregate": "mean", "server": "sgd"}


@dataclass(frozen=True)
class Preset:
    """A paper's algorithm as a composition of parts, with the paper's own defaults where they differ."""

    paper: str
    correction: str = "none"
    aggregate: str = "mean"
    server: str = "sgd"
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # part -> settings

    def flat(self) -> dict[str, tuple[str, str]]:
        """Flat setting name -> (part, field); the server's lr is `server_lr`."""
        names: dict[str, tuple[str, str]] = {}
        for part, table in PARTS.items():
            for f in fields(table[getattr(self, part)]):
                name = "server_lr" if (part, f.name) == ("server", "lr") else f.name
                names[name] = (part, f.name)
        return names


PRESETS = {
    "fedavg": Preset("McMahan et al. 2017"),
    "drag": Preset("Zhu et al. 2023, arXiv 2309.01779", aggregate="drag"),
    "br_drag": Preset("Zhu et al. 2023, arXiv 2309.01779", aggregate="br_drag"),
    "fltrust": Preset("Cao et al. 2021", aggregate="fltrust"),
}


def expand(table: Mapping[str, Any]) -> dict[str, Any]:
    """An `[algorithm]` table with its three parts spelled out: {name, correction, aggregate, server}.

    Given a preset's name and flat settings, or parts, or both.
    """
    given = dict(table)
    parts = {part: given.pop(part) for part in PARTS if part in given}
    name = given.pop("name", None)
    if len(parts) == len(PARTS):  # an expanded table: the name is only a label
        if given:
            raise SpecError(_stray(next(iter(given)), name, []))
        return {"name": name or _label(parts), **parts}
    if name is not None and name not in PRESETS:
        raise SpecError(f"algorithm.name: unknown algorithm '{name}'{nearest(str(name), PRESETS)}")
    preset = PRESETS[name or "fedavg"]
    flat = preset.flat()
    tables = {part: {"name": getattr(preset, part), **preset.defaults.get(part, {})} for part in PARTS}
    for key, value in given.items():
        if key not in flat or flat[key][0] in parts:
            raise SpecError(_stray(key, name, list(flat)))
        part, setting = flat[key]
        tables[part][setting] = value
    expanded = {**tables, **parts}
    return {"name": _label(expanded) if parts or name is None else name, **expanded}


def _label(parts: Mapping[str, Any]) -> str:
    """What to call a composition: the names of its parts that are not FedAvg's, as in `drag+momentum`."""
    names = [_part_name(parts[part]) for part in PARTS if _part_name(parts[part]) != DEFAULTS[part]]
    return "+".join(names) or "fedavg"


def _part_name(part: Any) -> str:
    name = part.get("name", "") if isinstance(part, Mapping) else part
    return str(name) if isinstance(name, str) else type(name).__name__


def _stray(key: str, name: str, known: list[str]) -> str:
    hint = nearest(key, known) if known else "; name the part, as in algorithm.aggregate." + key
    return f"algorithm.{key}: '{name}' has no setting '{key}'{hint}"

"""Tune the strength of every attack against every defence, with the same number of candidate runs for each.

An attack declares its strength setting and the range of its values in the attribute `strength`:

    strength: ClassVar[Strength] = ("scale", 0.25, 16.0)

A plain function declares it after its definition: `opposite.strength = ("scale", 0.25, 16.0)`.

The candidates are the value of the experiment and values that cover the range in geometric steps. A candidate run has
a seed that no reported run uses and a validation split. The attacker takes the candidate with the lowest validation
accuracy in the last evaluated round; a run that diverged counts as chance level. Attacks without `strength` run as they
are, and so do all against `root_only`, which no attack changes. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import log
from typing import Any

import numpy as np

from dragfl.attacks.function import FunctionAttack
from dragfl.errors import SpecError
from dragfl.runs.arena_plan import CONTROL, Arena, Cell, CellKey
from dragfl.runs.directory import TUNING, Run, load_run
from dragfl.runs.sweep_plan import PlannedRun, run_name
from dragfl.runs.tuning import TUNING_SEEDS, VALIDATION
from dragfl.types import Strength

SEED = TUNING_SEEDS[0]
METRIC = "validation_accuracy"


@dataclass(frozen=True)
class StrengthTuning:
    """The candidates of one attack against one defence; `cells` are the final runs, one for each seed."""

    cells: list[Cell]
    setting: str
    candidates: list[Any]
    planned: list[PlannedRun]  # one for each candidate

    @property
    def later(self) -> list[PlannedRun]:
        """Placeholders for the final runs."""
        return [_planned(cell) for cell in self.cells]

    def select(self) -> Mapping[str, Any]:
        """The candidate with the lowest accuracy, as `arena.json` has it; of equal ones the default."""
        found = [_last_accuracy(load_run(p.folder)) for p in self.planned]
        default = _settings(_planned(self.cells[0]).experiment.attack)[self.setting]
        candidates = zip(found, self.candidates, strict=True)
        _, selected = min(candidates, key=lambda candidate: (candidate[0], candidate[1] != default))
        names = ("defence", "attack", "partition", "attackers")
        return {
            **dict(zip(names, self.cells[0].key, strict=True)),
            "setting": self.setting,
            "selected": selected,
            "candidates": self.candidates,
            METRIC: found,
        }

    def final_cells(self, selected: Any) -> list[Cell]:
        """The cells with the selected strength."""
        return [_with_strength(cell, self.setting, selected) for cell in self.cells]


def plan_strengths(arena: Arena, budget: int) -> list[StrengthTuning]:
    """The candidate runs of every attack with a strength setting against every defence that can be configured."""
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 2:
        raise SpecError(f"arena: tune_attacks {budget!r}; give the number of candidates of each attack, at least 2")
    if SEED in arena.seeds:
        raise SpecError(f"arena: seed {SEED} is reserved for tuning; use other seeds for the reported runs")
    groups: dict[CellKey, tuple[Strength, list[Cell]]] = {}
    for cell in arena.cells:
        if cell.planned is not None and cell.defence != CONTROL and (strength := _strength(cell)):
            groups.setdefault(cell.key, (strength, []))[1].append(cell)
    return [_plan_candidates(arena, cells, strength, budget) for strength, cells in groups.values()]


def strength_values(default: Any, low: float, high: float, n: int) -> list[Any]:
    """n values from low to high in geometric steps, the nearest of them replaced by the default.

    A default that is no positive number, such as None for a value that the attack computes, is one of the n.

    >>> strength_values(1.0, 0.25, 16.0, 4), strength_values(None, 0.5, 2.0, 3)
    ([0.25, 1.0, 4.0, 16.0], [None, 0.5, 2.0])
    """
    if isinstance(default, bool) or not isinstance(default, int | float) or default <= 0:
        return [default, *sorted(_rounded(value) for value in np.geomspace(high, low, n - 1))]
    values = [_rounded(value) for value in np.geomspace(low, high, n)]
    nearest = min(range(n), key=lambda i: abs(log(values[i] / default)))
    return [*values[:nearest], default, *values[nearest + 1 :]]


def _plan_candidates(arena: Arena, cells: list[Cell], strength: Strength, budget: int) -> StrengthTuning:
    first, (setting, low, high) = cells[0], strength
    experiment = _planned(first).experiment
    candidates = strength_values(_settings(experiment.attack)[setting], low, high, budget)
    evaluation = replace(experiment.evaluation, validation=experiment.evaluation.validation or VALIDATION)
    planned = []
    for value in candidates:
        changed = _planned(_with_strength(first, setting, value))
        name = changed.name.removesuffix(f"-seed{first.seed}") + f"-seed{SEED}"
        trial = replace(changed.experiment, name=name, seed=SEED, stop_at_target=False, evaluation=evaluation)
        planned.append(PlannedRun(arena.folder / TUNING / name, trial))
    return StrengthTuning(cells, setting, candidates, planned)


def _planned(cell: Cell) -> PlannedRun:
    """The run of a cell; only cells that have one are tuned."""
    if cell.planned is None:
        raise ValueError(f"{cell.defence}, {cell.attack}: no run to tune: {cell.reason}")
    return cell.planned


def _strength(cell: Cell) -> Strength | None:
    """What the attack of a cell declares, checked; None without a declaration."""
    attack = _planned(cell).experiment.attack
    declared = getattr(getattr(attack, "function", attack), "strength", None)
    if declared is None:
        return None
    try:
        setting, low, high = declared
        valid = setting in _settings(attack) and 0 < low < high
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise SpecError(
            f"arena, attack '{cell.attack}': strength is {declared!r}; give (setting, lowest, highest), a setting of "
            'the attack and two positive numbers, such as ("scale", 0.25, 16.0)'
        )
    return setting, low, high


def _settings(attack: Any) -> Mapping[str, Any]:
    """The settings of an attack: the fields of its dataclass, or the parameters of its function."""
    if isinstance(attack, FunctionAttack):
        return attack.settings
    return {f.name: getattr(attack, f.name) for f in fields(attack)}


def _with_strength(cell: Cell, setting: str, value: Any) -> Cell:
    """The cell with another value of the setting, and a run directory of its own."""
    before = _planned(cell)
    attack: Any = before.experiment.attack
    name = before.name if value is None else f"{run_name({setting: value})}-{before.name}"
    change = {setting: value}
    if isinstance(attack, FunctionAttack):
        change = {"settings": {**attack.settings, **change}}
    experiment = replace(before.experiment, name=name, attack=replace(attack, **change))
    return replace(cell, planned=PlannedRun(before.folder.with_name(name), experiment))


def _last_accuracy(run: Run) -> float:
    values = run.values(METRIC)
    return run.chance if run.diverged or not values else values[-1][1]


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")

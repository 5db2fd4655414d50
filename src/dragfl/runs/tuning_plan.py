"""Plan a sweep with tuned keys: tuning runs first, then the final runs with the selected values. Imports no torch.

OUT/tuning/NAME    tuning runs: seeds 100 to 102, a validation split, every candidate
OUT/final/NAME     final runs: the selected values, the given seeds, all training data
OUT/tuning.json    the scores of all candidates, and the selected ones
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragfl.config.overrides import replace_values
from dragfl.config.spec import read
from dragfl.errors import SpecError, nearest
from dragfl.runs.directory import FINAL, TUNING, load_run
from dragfl.runs.sweep_plan import Grid, PlannedRun, plan_sweep, run_name
from dragfl.runs.tuning import TUNING_SEEDS, VALIDATION, Score, best_candidate, next_value, score_run

ROUNDS = "rounds"
BEST_BY = ("validation_accuracy", "validation_loss", ROUNDS)  # what candidates can be compared by


@dataclass(frozen=True)
class Tuning:
    """The candidates for one combination of the other keys, and their tuning runs."""

    combination: Mapping[str, Any]  # key -> value, without the seed
    candidates: list[dict[str, Any]]  # tuned key -> value
    runs: list[list[PlannedRun]]  # for every candidate, one for each tuning seed

    @property
    def planned(self) -> list[PlannedRun]:
        return [run for runs in self.runs for run in runs]


@dataclass(frozen=True)
class Tuned:
    """The result of tuning for one combination of the other keys."""

    combination: Mapping[str, Any]
    candidates: list[dict[str, Any]]
    scores: list[list[Score]]  # for every candidate, one for each tuning seed
    selected: dict[str, Any]

    @property
    def at_edge(self) -> dict[str, Any]:
        """Keys whose selected value is the smallest or largest one tried -> the value to add."""
        values = {key: [candidate[key] for candidate in self.candidates] for key in self.selected}
        more = {key: next_value(values[key], value) for key, value in self.selected.items()}
        return {key: value for key, value in more.items() if value is not None}

    @property
    def warnings(self) -> list[str]:
        where = ", ".join(f"{key}={value}" for key, value in self.combination.items()) or "sweep"
        if all(score.best is None for scores in self.scores for score in scores):
            return [f"{where}: all tuning runs diverged, so the first candidate is used; try other values"]
        return [
            f"{where}: the selected {key}={self.selected[key]} is at the edge of its grid; add {value} to its values"
            for key, value in self.at_edge.items()
        ]

    def table(self) -> dict[str, Any]:
        """Plain values, for a file; `name` is that of its runs without the seed."""
        candidates = [
            {
                "name": run_name({**self.combination, **candidate}),
                "values": candidate,
                "rounds": [s.rounds for s in scores],
                "best": [s.best for s in scores],
            }
            for candidate, scores in zip(self.candidates, self.scores, strict=True)
        ]
        return {"combination": dict(self.combination), "selected": self.selected, "candidates": candidates}


def plan_tuning(
    source: str | Path | Mapping[str, Any], grid: Grid, tune: Grid, out: str | Path, *, best_by: str = BEST_BY[0]
) -> list[Tuning]:
    """Every tuning run; the final runs are checked too, before the first run starts.

    Several tuned keys: all combinations of their values.
    """
    if best_by not in BEST_BY:
        raise SpecError(f"sweep: best_by '{best_by}' is unknown{nearest(best_by, BEST_BY)}")
    for key, values in tune.items():
        if key in grid or key == "seed":
            advice = "the tuning seeds are fixed" if key == "seed" else "it is a key of the grid; give it once"
            raise SpecError(f"sweep: '{key}' cannot be tuned here; {advice}")
        if len(values) < 2:
            raise SpecError(f"sweep: {len(values)} value to tune '{key}'; give at least two")
    tables = read(source)
    reserved = [seed for seed in final_seeds(tables, grid) if seed in TUNING_SEEDS]
    if reserved:
        raise SpecError(f"sweep: seed {reserved[0]} is reserved for tuning; use other seeds for the final runs")
    evaluation = tables.get("evaluation", {})
    held_out = evaluation.get("validation") if isinstance(evaluation, Mapping) else None
    changes = {"evaluation.validation": held_out or VALIDATION, "evaluation.target_on": "validation"}
    if best_by != ROUNDS:  # runs that stop at the target all have about the same best accuracy
        changes["stop_at_target"] = False
    for key in changes.keys() & {*grid, *tune}:
        raise SpecError(f"sweep: '{key}' has a fixed value in tuning runs; remove it from the sweep")
    candidates = _combinations(tune)

    def plan(values: Mapping[str, Any]) -> list[PlannedRun]:
        return plan_sweep(_changed(tables, changes), _single(values, TUNING_SEEDS), Path(out) / TUNING)

    tuning = [
        Tuning(combination, candidates, [plan({**combination, **candidate}) for candidate in candidates])
        for combination in _combinations({key: values for key, values in grid.items() if key != "seed"})
    ]
    for run in (run for part in tuning for run in part.planned):
        if best_by == ROUNDS and run.experiment.target_accuracy is None:
            raise SpecError(f"sweep, run '{run.name}': best_by '{ROUNDS}' needs target_accuracy; set it in the spec")
    plan_final(tables, grid, [Tuned(part.combination, candidates, [], candidates[0]) for part in tuning], out)
    return tuning


def select_values(tuning: Tuning, *, best_by: str = BEST_BY[0]) -> Tuned:
    """Select the best candidate from the finished tuning runs."""
    metric = BEST_BY[0] if best_by == ROUNDS else best_by
    scores = [
        [
            score_run(load_run(p.folder), metric, p.experiment.target_accuracy if best_by == ROUNDS else None)
            for p in runs
        ]
        for runs in tuning.runs
    ]
    selected = tuning.candidates[best_candidate(scores, metric)]
    return Tuned(tuning.combination, tuning.candidates, scores, selected)


def plan_final(
    source: str | Path | Mapping[str, Any], grid: Grid, tuned: Sequence[Tuned], out: str | Path
) -> list[PlannedRun]:
    """The final runs: the selected values, the seeds of the grid, all training data."""
    tables = read(source)
    changed = _changed(tables, {"evaluation.validation": 0.0, "evaluation.target_on": "test"})
    return [
        run
        for part in tuned
        for run in plan_sweep(
            changed, _single({**part.combination, **part.selected}, final_seeds(tables, grid)), Path(out) / FINAL
        )
    ]


def final_seeds(source: str | Path | Mapping[str, Any], grid: Grid) -> Sequence[Any]:
    """The seeds of the grid, else the one of the spec."""
    return grid.get("seed", [read(source).get("seed", 0)])


def _combinations(grid: Grid) -> list[dict[str, Any]]:
    for key, values in grid.items():
        if not values:
            raise SpecError(f"sweep: no values for '{key}'; give at least one")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _single(values: Mapping[str, Any], seeds: Sequence[Any]) -> Grid:
    """A grid with one value for each key, and these seeds."""
    return {**{key: [value] for key, value in values.items()}, "seed": seeds}


def _changed(tables: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return replace_values(tables, [(key.split("."), value) for key, value in changes.items()])

"""The runs behind a figure: planned, tuned where a curve needs it, and executed.

A run directory is named after its resolved settings, not after its figure, so figures share runs:

    emnist47-drag-1f2e3d4c-r1000-s0     dataset, algorithm, hash of the settings, rounds, seed
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.config.compare import comparable
from dragfl.config.overrides import override
from dragfl.config.spec import Experiment, resolve
from dragfl.errors import SpecError
from dragfl.reproduction.figure import Curve, Figure
from dragfl.reproduction.run_time import RunTimes
from dragfl.runs.directory import SPEC, Run, load_run
from dragfl.runs.sweep_plan import PlannedRun

if TYPE_CHECKING:
    from dragfl.runs.sweep import Callbacks

TUNING_SEED = 100  # never used for verdicts, whose seeds count from 0


@dataclass(frozen=True)
class FigureRequest:
    """A figure and how to run it: with the paper's settings, or with `quick` settings and `changes` (key=value)."""

    figure: Figure
    dataset: str
    seeds: tuple[int, ...]
    quick: bool = False
    changes: tuple[str, ...] = ()

    @property
    def overrides(self) -> list[str]:
        """All changes to the figure's experiment, in order of application."""
        quick = self.figure.quick
        reduced = [*quick.set, *quick.datasets.get(self.dataset, [])] if self.quick else []
        return [f"data.dataset={self.dataset}", *reduced, *self.changes]


@dataclass(frozen=True)
class CurveRun:
    """One run of a curve; `candidate` is the value tried by a tuning run."""

    curve: str
    seed: int
    planned: PlannedRun
    candidate: Any = None


@dataclass(frozen=True)
class FigurePlan:
    """The runs of a figure. Curves in `untuned` get their runs after their tuning runs have finished."""

    request: FigureRequest
    runs: list[CurveRun]
    tuning: list[CurveRun]
    tuned: Mapping[str, Any]  # curve -> selected value
    untuned: list[str]

    @property
    def planned(self) -> list[PlannedRun]:
        return [run.planned for run in [*self.tuning, *self.runs]]

    @property
    def runs_after_tuning(self) -> list[PlannedRun]:
        """Placeholders for the runs of untuned curves, one for each seed, to include them in estimates."""
        first = {run.curve: run.planned for run in reversed(self.tuning)}
        return [first[curve] for curve in self.untuned for _ in self.request.seeds]


def plan_figure(request: FigureRequest, folder: Path) -> FigurePlan:
    """Plan and check all runs of a figure; the value of a tuned setting depends on the finished tuning runs."""
    if TUNING_SEED in request.seeds:
        raise SpecError(f"reproduce: seed {TUNING_SEED} is reserved for tuning; use other seeds for verdicts")
    runs: list[CurveRun] = []
    tuning: list[CurveRun] = []
    tuned: dict[str, Any] = {}
    untuned: list[str] = []

    def plan_run(curve: Curve, settings: Sequence[str], seed: int, candidate: Any = None) -> CurveRun:
        experiment = resolve_run(request, [*curve.set, *settings], seed)
        return CurveRun(curve.id, seed, PlannedRun(folder / experiment.name, experiment), candidate)

    for curve in request.figure.curves:
        if curve.of is not None:
            continue
        settings: list[str] = []
        if curve.tune is not None:
            key, values = curve.tune.key, curve.tune.values
            if request.quick:
                selected = values[len(values) // 2]
            else:
                trials = [plan_run(curve, [f"{key}={json.dumps(v)}"], TUNING_SEED, v) for v in values]
                tuning += trials
                selected = select_tuned_value(trials)
            if selected is None:
                untuned.append(curve.id)
                continue
            tuned[curve.id] = selected
            settings = [f"{key}={json.dumps(selected)}"]
        runs += [plan_run(curve, settings, seed) for seed in request.seeds]
    return FigurePlan(request, runs, tuning, tuned, untuned)


def resolve_run(request: FigureRequest, settings: Sequence[str], seed: int) -> Experiment:
    tables = override(dict(request.figure.experiment), [*settings, *request.overrides, f"seed={seed}"])
    try:
        experiment = resolve(tables)
    except SpecError as error:
        raise SpecError(f"figure {request.figure.name}: {error}") from None
    return replace(experiment, name=run_name(experiment))


def run_name(experiment: Experiment) -> str:
    """The same name for the same settings."""
    tables = {k: v for k, v in comparable(experiment.tables()).items() if k not in ("seed", "rounds")}
    key = blake2b(json.dumps(tables, sort_keys=True).encode(), digest_size=4).hexdigest()
    prefix = f"{experiment.dataset}-{experiment.algorithm.name.rsplit(':', 1)[-1]}"
    slug = re.sub(r"[^A-Za-z0-9_+.-]+", "_", prefix)[:60]
    return f"{slug}-{key}-r{experiment.rounds}-s{experiment.seed}"


def select_tuned_value(trials: Sequence[CurveRun]) -> Any:
    """The value that reaches the target first, then the most accurate; None until all trials have run.

    Without a target, the most accurate. A run that diverged ranks last.
    """
    scores: list[tuple[float, float]] = []
    for trial in trials:
        run = finished_run(trial.planned.folder)
        if run is None or run.result is None:
            return None
        diverged = run.result["stopped_by"] == "diverged"
        target = trial.planned.experiment.target_accuracy
        first = None if target is None or diverged else run.rounds_to(target)
        best = -1.0 if diverged else float(run.result["best_accuracy"] or 0.0)
        scores.append((float("inf") if first is None else first, -best))
    return trials[scores.index(min(scores))].candidate


def finished_run(folder: Path) -> Run | None:
    found = load_run(folder) if (folder / SPEC).is_file() else None
    return found if found is not None and found.finished else None


def unique_runs(planned: Iterable[PlannedRun]) -> list[PlannedRun]:
    return list({p.name: p for p in planned}.values())


def missing_runs(plans: Sequence[FigurePlan]) -> list[PlannedRun]:
    """The unfinished runs: the cheapest figure first, within a figure its tuning runs, then seed by seed."""
    times = RunTimes([p for plan in plans for p in plan.planned])
    order: list[PlannedRun] = []
    for plan in sorted(plans, key=lambda plan: times.remaining(plan.planned)):
        by_seed = sorted(plan.runs, key=lambda run: run.seed)
        order += [run.planned for run in [*plan.tuning, *by_seed]]
    return [p for p in unique_runs(order) if finished_run(p.folder) is None]


def run_figures(
    requests: Sequence[FigureRequest],
    folder: Path,
    callbacks: Callbacks,
    *,
    on_plan: Callable[[Sequence[PlannedRun], Sequence[PlannedRun]], None] = lambda missing, later: None,
    jobs: int = 1,
) -> None:
    """Execute the missing runs, in two passes where curves are tuned: their runs depend on the tuning runs.

    Each pass calls `on_plan` with its runs and with placeholders for the runs of the next pass.
    """
    from dragfl.runs.sweep import run_planned

    while True:
        plans = [plan_figure(request, folder) for request in requests]
        missing = missing_runs(plans)
        if not missing:
            return
        on_plan(missing, [p for plan in plans for p in plan.runs_after_tuning])
        try:
            run_planned(missing, callbacks, jobs=min(jobs, len(missing)), command="reproduce")
        except SpecError as error:
            raise SpecError(str(error).replace("--out", "--runs")) from None

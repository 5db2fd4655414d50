"""The runs behind a figure: planned, tuned where a curve needs it, and executed.

A run directory is named after its resolved settings, not after its figure, so figures share runs:

    emnist47-drag-1f2e3d4c-r1000-s0     dataset, algorithm, hash of the settings, rounds, seed
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.config.compare import comparable
from dragfl.config.overrides import override
from dragfl.config.spec import Experiment, resolve
from dragfl.errors import SpecError
from dragfl.reproduction.figure import Figure, Tune
from dragfl.reproduction.run_time import RunTimes
from dragfl.runs.directory import SPEC, Run, load_run
from dragfl.runs.sweep_plan import PlannedRun
from dragfl.runs.tuning import TUNING_SEEDS, VALIDATION, Score, best_candidate, next_value, score_run

if TYPE_CHECKING:
    from dragfl.runs.sweep import Callbacks

MAX_EXTENSIONS = 3  # of a grid whose best value is at its edge


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
    """One run of a curve."""

    curve: str
    seed: int
    planned: PlannedRun
    candidate: Any = None  # the value tried by a tuning run
    shortened: bool = False  # to fewer rounds than the figure's; see racing.py


@dataclass(frozen=True)
class FigurePlan:
    """The runs of a figure. Curves in `untuned` get their runs after their tuning runs have finished."""

    request: FigureRequest
    runs: list[CurveRun]
    tuning: list[CurveRun]  # every candidate with every tuning seed
    tuned: Mapping[str, Any]  # curve -> selected value
    untuned: list[str]
    deferred: list[CurveRun] = field(default_factory=list)  # runs whose length is not known yet; see racing.py

    @property
    def planned(self) -> list[PlannedRun]:
        return [run.planned for run in [*self.tuning, *self.runs]]

    @property
    def later(self) -> list[PlannedRun]:
        """Placeholders for the runs that depend on others, to include them in estimates."""
        first = {run.curve: run.planned for run in reversed(self.tuning)}
        untuned = [first[curve] for curve in self.untuned for _ in self.request.seeds]
        return [*untuned, *(run.planned for run in self.deferred)]


Planner = Callable[[FigureRequest, Path], FigurePlan]


def plan_figure(request: FigureRequest, folder: Path) -> FigurePlan:
    """Plan and check all runs of a figure; the value of a tuned setting depends on the finished tuning runs."""
    reserved = [seed for seed in request.seeds if seed in TUNING_SEEDS]
    if reserved:
        raise SpecError(f"reproduce: seed {reserved[0]} is reserved for tuning; use other seeds for verdicts")
    runs: list[CurveRun] = []
    tuning: list[CurveRun] = []
    tuned: dict[str, Any] = {}
    untuned: list[str] = []
    for curve in request.figure.curves:
        if curve.of is not None:
            continue
        settings: list[str] = []
        if curve.tune is not None:
            trials, selected = plan_trials(request, folder, curve.id, curve.tune)
            tuning += trials
            if selected is None:
                untuned.append(curve.id)
                continue
            tuned[curve.id] = selected
            settings = [f"{curve.tune.key}={json.dumps(selected)}"]
        runs += [plan_run(request, folder, curve.id, settings, seed) for seed in request.seeds]
    return FigurePlan(request, runs, tuning, tuned, untuned)


def plan_trials(request: FigureRequest, folder: Path, curve: str, tune: Tune) -> tuple[list[CurveRun], Any]:
    """The tuning runs of a curve and the selected value, which is None until they have run.

    A grid whose best value is its smallest or largest one is extended by `next_value`, at most three times and only by
    values that the setting accepts, so that the best value lies inside it. Quick settings have no tuning runs.
    """
    if request.quick:
        return [], tune.values[len(tune.values) // 2]
    split = [f"evaluation.validation={VALIDATION}", 'evaluation.target_on="validation"']

    def plan_candidate(value: Any) -> list[CurveRun]:
        settings = [f"{tune.key}={json.dumps(value)}", *(split if tune.on == "validation" else [])]
        return [plan_run(request, folder, curve, settings, seed, value) for seed in TUNING_SEEDS]

    values = list(tune.values)
    trials = [plan_candidate(value) for value in values]
    for extension in range(MAX_EXTENSIONS + 1):
        selected = select_tuned_value(trials)
        more = None if selected is None or extension == MAX_EXTENSIONS else next_value(values, selected)
        if more is None:
            break
        try:
            trials.append(plan_candidate(more))
        except SpecError:  # the setting does not accept this value: its range ends here
            break
        values.append(more)
    return [trial for candidate in trials for trial in candidate], selected


def plan_run(
    request: FigureRequest, folder: Path, curve: str, settings: Sequence[str], seed: int, candidate: Any = None
) -> CurveRun:
    experiment = resolve_run(request, [*request.figure[curve].set, *settings], seed)
    return CurveRun(curve, seed, PlannedRun(folder / experiment.name, experiment), candidate)


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


def without_rounds(name: str) -> str:
    """The name of a run without its number of rounds: the same for a shorter run."""
    return re.sub(r"-r\d+(-s\d+)$", r"\1", name)


def select_tuned_value(trials: Sequence[Sequence[CurveRun]]) -> Any:
    """The best candidate, from the trials of each on the tuning seeds; None until all have run.

    The value that reaches the target first, then the most accurate: medians over the tuning seeds.
    """
    scores = [[score_trial(trial) for trial in candidate] for candidate in trials]
    finished = [[score for score in candidate if score is not None] for candidate in scores]
    if [len(candidate) for candidate in finished] != [len(candidate) for candidate in scores]:
        return None
    return trials[best_candidate(finished, "accuracy")][0].candidate


def score_trial(trial: CurveRun) -> Score | None:
    """Rounds to the target and best accuracy, on the data that the trial is judged by; None until it has run."""
    run, experiment = finished_run(trial.planned.folder), trial.planned.experiment
    if run is None:
        return None
    return score_run(run, experiment.evaluation.target_metric, experiment.target_accuracy)


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
    plan: Planner = plan_figure,
    on_plan: Callable[[Sequence[PlannedRun], Sequence[PlannedRun]], None] = lambda missing, later: None,
    jobs: int = 1,
) -> None:
    """Execute the missing runs, in several passes where runs depend on others: tuned curves, and `--until-decided`.

    Each pass calls `on_plan` with its runs and with placeholders for the runs of later passes.
    """
    from dragfl.runs.same_run import START_OVER
    from dragfl.runs.sweep import find_stale, run_planned

    checked: set[str] = set()
    while True:
        plans = [plan(request, folder) for request in requests]
        missing = missing_runs(plans)
        planned = unique_runs(p for part in plans for p in part.planned)
        try:
            find_stale([(p, finished_run(p.folder)) for p in planned if p.name not in checked], allowed=False)
            checked |= {p.name for p in planned}
            if not missing:
                return
            on_plan(missing, [p for part in plans for p in part.later])
            run_planned(missing, callbacks, jobs=min(jobs, len(missing)), command="reproduce")
        except SpecError as error:
            raise SpecError(str(error).replace(START_OVER, "choose another folder (--runs), or delete it")) from None

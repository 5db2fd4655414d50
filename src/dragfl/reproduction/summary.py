"""A small summary of a figure's runs, kept in the repository: the settings, and a record for every curve and seed.

Verdicts, plots and the page are computed from summaries alone, so they can be repeated without any run. Summaries of
several machines add up: a stored record stays as long as its run has the settings that the figure asks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from dragfl.atomic import write_text
from dragfl.config.migrate import rename_override
from dragfl.errors import DamagedRun
from dragfl.reproduction.figure import Figure, load_figure
from dragfl.reproduction.runs import CurveRun, FigurePlan, finished_run, resolve_run, score_trial, without_rounds
from dragfl.runs.directory import Run

# Of datasets whose stored records have no number of classes.
CHANCE = {"emnist": 1 / 47, "emnist47": 1 / 47, "cifar10": 0.1, "mnist": 0.1, "digits": 0.1}
CUT_SHORT = "decided"  # how a run ended that --until-decided has shortened
WINDOW = 100  # rounds: the last ones for final accuracy and its standard deviation, the first ones for cosines
TELEMETRY = {  # statistics of a record that are computed from the logs of a run; see `telemetry`
    "bytes": "bytes in a round, up and down, all clients together: mean over rounds",
    "step_ratio": "norm of the step over the norm of the mean update: median over rounds",
    "mean_norm": "norm of the mean update: median over the last rounds",
    "pairwise_cosine": "mean pairwise cosine of the (dragged) updates: mean over the first rounds",
    "reference_norm": "norm of the reference, for BR-DRAG the root update: median over rounds",
    "over_reference": "fraction of rounds with a step longer than the reference",
    "skipped": "fraction of rounds without a step",
    "against": "fraction of honest updates with a cosine to the reference of at most 0",
    "reversed": "fraction of malicious updates with a negative weight, λ > 1",
    "shortened": "fraction of updates whose component along the reference became smaller by dragging",
}


@dataclass(frozen=True)
class Record:
    """One finished run.

    A run that diverged is judged at chance level, 1 / classes: its model is as good as a guess.
    """

    run: str  # name of the run directory
    seed: int
    limit: int  # maximum number of rounds
    ended: str  # "rounds", "target", "diverged", or "decided": it could no longer change a verdict
    accuracy: list[tuple[int, float]]  # (round, test accuracy) at every evaluated round
    numbers: dict[str, float] = field(default_factory=dict)  # see TELEMETRY
    seconds: float = 0.0  # of computing: the sum over the rounds, without the pauses of an interrupted run
    own: list[tuple[int, float]] = field(default_factory=list)  # accuracy of the model that the algorithm's paper uses
    diverged_at: int | None = None  # the round, where it was recorded
    chance: float = 0.0  # accuracy of a guess
    commit: str = ""
    machine: str = ""
    derived: bool = False  # whether `accuracy` is the `own` of a run that another curve shows; not stored

    @property
    def diverged(self) -> bool:
        """Whether the run diverged; such a run counts as having reached no target."""
        return self.ended == "diverged"

    @property
    def last(self) -> int:
        """The last evaluated round, 0 if there is none."""
        return self.accuracy[-1][0] if self.accuracy else 0

    @property
    def end(self) -> int:
        """The round up to which the accuracy is known: a run that stopped early says nothing about later rounds."""
        return self.limit if self.ended == "rounds" or self.diverged else self.last

    def until(self, end: int) -> Record:
        """The record of the same run, stopped after this round."""
        if end >= self.end:
            return self
        return replace(self, limit=end, accuracy=[(t, value) for t, value in self.accuracy if t <= end])

    def rounds_to(self, target: float) -> int | None:
        """The first evaluated round with at least this accuracy, or None."""
        return None if self.diverged else next((t for t, value in self.accuracy if value >= target), None)

    @property
    def final(self) -> float:
        """Mean accuracy over the evaluations of the last rounds."""
        return self.chance if self.diverged else fmean(self._last_accuracies)

    @property
    def accuracy_std(self) -> float:
        """Standard deviation of the accuracy over the evaluations of the last rounds."""
        return inf if self.diverged else pstdev(self._last_accuracies)

    @property
    def mean(self) -> float:
        """Mean accuracy over all evaluations: higher for a faster run."""
        return self.chance if self.diverged or not self.accuracy else fmean(value for _, value in self.accuracy)

    @property
    def best(self) -> float:
        """The highest accuracy; for a run that diverged, of its time before that."""
        return max((value for _, value in self.accuracy), default=self.chance)

    @property
    def _last_accuracies(self) -> list[float]:
        """Of the last 100 rounds, or of the last half of a shorter run."""
        if not self.accuracy:
            return [self.chance]
        return [value for t, value in self.accuracy if t > self.last - min(WINDOW, self.last // 2 or 1)]


@dataclass(frozen=True)
class Summary:
    """The runs of a figure."""

    figure: str
    dataset: str
    rounds: int  # maximum for every run
    target: float | None
    quick: bool
    changes: list[str]  # key=value, from the command line
    tuned: dict[str, Any]  # curve -> value selected on the tuning seeds
    tuning: list[dict[str, Any]]  # tuning runs: curve, value, seed, rounds to the target, best accuracy, seconds, run
    curves: dict[str, dict[int, Record]]  # curve -> seed -> record

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for records in self.curves.values() for seed in records})

    @property
    def records(self) -> list[Record]:
        """Of all runs, as they were evaluated; derived curves show the same runs by another model."""
        return [r for records in self.curves.values() for r in records.values() if not r.derived]

    @property
    def reported_changes(self) -> list[str]:
        """The changes from the command line; selecting one of the figure's own datasets is not a change."""
        own = [f"data.dataset={name}" for name in load_figure(self.figure).datasets]
        return [change for change in self.changes if change not in own]


Summaries = Mapping[str, Summary]  # by figure


def summarise(plan: FigurePlan, stored: Summary | None = None, others: Iterable[Summary] = ()) -> Summary:
    """Summarise the finished runs of a figure, and keep the stored records of runs that are elsewhere.

    The name of a run has the hash of its settings, its rounds and its seed, so a record with other settings is dropped.
    A run that figures share may be stored in the summaries of the `others`.
    """
    request, figure = plan.request, plan.request.figure
    known = [*others, *([] if stored is None else [stored])]
    records = {record.run: record for summary in known for record in summary.records}
    trials = {} if stored is None else {trial["run"]: trial for trial in stored.tuning if "run" in trial}
    tuning = [trial for run in plan.tuning if (trial := make_trial(run) or trials.get(run.planned.name))]
    tuned = dict(plan.tuned)
    runs = [*plan.runs, *plan.deferred]
    by_length = sorted(records.values(), key=lambda record: record.limit)
    shortened = {without_rounds(record.run): record for record in by_length if record.ended == CUT_SHORT}
    wanted = [(run.curve, run.seed, run.planned.name, finished_run(run.planned.folder)) for run in runs]
    for curve in map(figure.__getitem__, plan.untuned):
        names = [run.planned.name for run in plan.tuning if run.curve == curve.id]
        if stored is not None and curve.tune is not None and curve.id in stored.tuned and trials.keys() >= set(names):
            value = tuned[curve.id] = stored.tuned[curve.id]
            tuning += [trial for trial in trials.values() if trial["curve"] == curve.id and trial not in tuning]
            settings = [*curve.set, f"{curve.tune.key}={json.dumps(value)}"]
            wanted += [(curve.id, seed, resolve_run(request, settings, seed).name, None) for seed in request.seeds]
    curves: dict[str, dict[int, Record]] = {curve.id: {} for curve in figure.curves}
    for curve_id, seed, name, done in wanted:
        record = records.get(name) or shortened.get(without_rounds(name)) if done is None else make_record(done)
        if record is not None:
            curves[curve_id][seed] = record
    for run in plan.runs:
        record = curves[run.curve].get(run.seed)
        if run.shortened and record is not None and record.ended == "rounds":
            curves[run.curve][run.seed] = replace(record, ended=CUT_SHORT)
    experiment = [*runs, *plan.tuning][0].planned.experiment
    return Summary(
        figure=figure.name,
        dataset=request.dataset,
        rounds=max(run.planned.experiment.rounds for run in [*runs, *plan.tuning]),
        target=experiment.target_accuracy,
        quick=request.quick,
        changes=list(request.changes),
        tuned=tuned,
        tuning=tuning,
        curves=add_derived(figure, curves),
    )


def make_trial(run: CurveRun) -> dict[str, Any] | None:
    """The result of a finished tuning run, on the data that it is judged by; None if it has not finished."""
    done, score = finished_run(run.planned.folder), score_trial(run)
    if done is None or score is None:
        return None
    return {
        "curve": run.curve,
        "value": run.candidate,
        "seed": run.seed,
        "rounds": score.rounds,
        "best": _rounded(score.best or 0.0),
        "seconds": _seconds(done),
        "run": run.planned.name,
    }


def add_derived(figure: Figure, curves: Mapping[str, dict[int, Record]]) -> dict[str, dict[int, Record]]:
    """The curves, with those that show the runs of another curve by its own model."""
    derived = {
        curve.id: {
            seed: replace(record, accuracy=record.own, own=[], derived=True)
            for seed, record in curves.get(curve.of, {}).items()
            if record.own or record.diverged
        }
        for curve in figure.curves
        if curve.of is not None
    }
    return {**curves, **derived}


def make_record(run: Run) -> Record:
    return Record(
        run=run.name,
        seed=int(run.spec["seed"]),
        limit=int(run.spec["rounds"]),
        ended=str((run.result or {})["stopped_by"]),
        accuracy=[(int(t), _rounded(value)) for t, value in run.accuracy],
        numbers={name: _rounded(value) for name, value in telemetry(run.metrics, run.clients).items()},
        seconds=_seconds(run),
        own=[(int(t), _rounded(value)) for t, value in run.values("own_accuracy")],
        diverged_at=run.diverged_at,
        chance=_rounded(run.chance or CHANCE.get(str(run.spec["data"]["dataset"]), 0.0)),
        commit=str(run.info.get("git") or ""),
        machine=f"{run.info.get('cpu', '?')}, torch {run.info.get('torch', '?')}",
    )


def telemetry(metrics: Sequence[Mapping[str, Any]], clients: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The statistics of TELEMETRY, as far as the logs of a run have the data for them."""
    if not metrics:
        return {}
    values: dict[str, list[float]] = {
        "bytes": [row["bytes_up"] + row["bytes_down"] for row in metrics],
        "step_ratio": _column(metrics, "step_ratio"),
        "mean_norm": _column(metrics[-WINDOW:], "mean_norm"),
        "pairwise_cosine": _column(metrics[:WINDOW], "pairwise_cosine"),
        "reference_norm": _column(metrics, "reference_norm"),
        "over_reference": [
            row["step_norm"] > row["reference_norm"] * (1 + 1e-5) for row in metrics if "reference_norm" in row
        ],
        "skipped": ["skipped" in row or row.get("step_norm") == 0.0 for row in metrics],
        "against": [],
        "reversed": [],
        "shortened": [],
    }
    for line in (line for line in clients if "cosine" in line):
        divergences = line.get("divergence", [None] * len(line["cosine"]))
        for x, lam, malicious in zip(line["cosine"], divergences, line["attacker"], strict=True):
            if x is None:
                continue
            if not malicious:
                values["against"].append(x <= 0.0)
            if lam is not None:
                values["shortened"].append((1.0 - lam) * x + lam < x - 1e-6)
                if malicious:
                    values["reversed"].append(lam > 1.0)
    medians = ("step_ratio", "mean_norm", "reference_norm")
    return {name: median(v) if name in medians else fmean(v) for name, v in values.items() if v}


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in rows if isinstance(row.get(name), int | float)]


def _seconds(run: Run) -> float:
    """The sum over rounds; the time between an interruption and the continuation is in no round."""
    return float(f"{sum(float(line.get('seconds', 0.0)) for line in run.timing):.3g}")


def _rounded(value: float) -> float:
    """Four digits after the point, or four significant digits for small and large numbers."""
    if float(value).is_integer():
        return value
    return round(value, 4) if 0.1 <= abs(value) < 10 else float(f"{value:.4g}")


def write_summary(summary: Summary, path: Path) -> None:
    """Write JSON with one line for each key and each record, so that changes show line by line.

    Derived curves are left out: they are read from the records of the curve whose runs they show.
    """
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in vars(summary).items() if k != "curves"]
    curves = []
    for curve, records in summary.curves.items():
        if any(record.derived for record in records.values()):
            continue
        rows = [json.dumps(_pack(record), separators=(",", ":")) for _, record in sorted(records.items())]
        inner = "\n   " + ",\n   ".join(rows) + "\n  " if rows else ""
        curves.append(f"  {json.dumps(curve)}: [{inner}]")
    lines.append(' "curves": {\n' + ",\n".join(curves) + "\n }")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_summary(path: Path) -> Summary:
    """Read a summary, also one of an earlier version, whose records have no machine and no chance level."""
    try:
        table = json.loads(path.read_text())
        if "panel" in table:  # the key of dragfl 0.1
            table["figure"] = table.pop("panel")
        table["changes"] = [rename_override(change) for change in table["changes"]]
        missing = {"machine": table.pop("machine", ""), "chance": CHANCE.get(table["dataset"], 0.0)}
        curves = {c: {r["seed"]: _unpack(missing | r) for r in records} for c, records in table.pop("curves").items()}
        return Summary(**table, curves=add_derived(load_figure(table["figure"]), curves))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedRun(
            f"{path}: not a readable summary ({error}); delete it and run `dragfl reproduce {path.stem} --judge`"
        ) from None


def _pack(record: Record) -> dict[str, Any]:
    """Without empty fields. Where evaluations are evenly spaced, only their values and the spacing are stored."""
    table = {name: value for name, value in vars(record).items() if value not in ("", None, []) and name != "derived"}
    table["accuracy"] = record.accuracy
    rounds = [t for t, _ in record.accuracy]
    every = rounds[0] if rounds else 1
    if rounds == [every * (i + 1) for i in range(len(rounds))]:
        table["every"], table["accuracy"] = every, [value for _, value in record.accuracy]
        if rounds == [t for t, _ in record.own]:
            table["own"] = [value for _, value in record.own]
    return table


def _unpack(table: dict[str, Any]) -> Record:
    every = table.pop("every", None)

    def pairs(values: list[Any]) -> list[tuple[int, float]]:
        single = bool(values) and not isinstance(values[0], list)
        return [(every * (i + 1), v) for i, v in enumerate(values)] if single else [(int(t), v) for t, v in values]

    accuracy, own = (pairs(table.pop(name, [])) for name in ("accuracy", "own"))
    return Record(**table, accuracy=accuracy, own=own)

"""A small summary of a figure's runs, kept in the repository: the settings, and a record for every curve and seed.

Verdicts, plots and the page are computed from summaries alone, so they can be repeated without any run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from dragfl.atomic import write_text
from dragfl.config.migrate import rename_override
from dragfl.errors import DamagedRun
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.runs import FigurePlan, finished_run, score_trial
from dragfl.runs.directory import Run

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
    """One finished run."""

    run: str  # name of the run directory
    seed: int
    limit: int  # maximum number of rounds
    ended: str  # "rounds", "target" or "diverged"
    accuracy: list[tuple[int, float]]  # (round, test accuracy) at every evaluated round
    numbers: dict[str, float] = field(default_factory=dict)  # see TELEMETRY
    seconds: float = 0.0

    @property
    def diverged(self) -> bool:
        """Whether the run diverged; such a run counts as having reached no target."""
        return self.ended == "diverged"

    def rounds_to(self, target: float) -> int | None:
        """The first evaluated round with at least this accuracy, or None."""
        return None if self.diverged else next((t for t, value in self.accuracy if value >= target), None)

    @property
    def final(self) -> float:
        """Mean accuracy over the evaluations of the last rounds."""
        return 0.0 if self.diverged else fmean(self._last_accuracies)

    @property
    def accuracy_std(self) -> float:
        """Standard deviation of the accuracy over the evaluations of the last rounds."""
        return inf if self.diverged else pstdev(self._last_accuracies)

    @property
    def mean(self) -> float:
        """Mean accuracy over all evaluations: higher for a faster run."""
        return 0.0 if self.diverged or not self.accuracy else fmean(value for _, value in self.accuracy)

    @property
    def best(self) -> float:
        return max((value for _, value in self.accuracy), default=0.0)

    @property
    def _last_accuracies(self) -> list[float]:
        """Of the last 100 rounds, or of the last half of a shorter run."""
        if not self.accuracy:
            return [0.0]
        end = self.accuracy[-1][0]
        return [value for t, value in self.accuracy if t > end - min(WINDOW, end // 2 or 1)]


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
    tuning: list[dict[str, Any]]  # tuning runs: curve, value, seed, rounds to the target, best accuracy, seconds
    machine: str
    curves: dict[str, dict[int, Record]]  # curve -> seed -> record

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for records in self.curves.values() for seed in records})

    @property
    def records(self) -> list[Record]:
        return [record for records in self.curves.values() for record in records.values()]

    @property
    def reported_changes(self) -> list[str]:
        """The changes from the command line; selecting one of the figure's own datasets is not a change."""
        own = [f"data.dataset={name}" for name in load_figure(self.figure).datasets]
        return [change for change in self.changes if change not in own]


Summaries = Mapping[str, Summary]  # by figure


def summarise(plan: FigurePlan) -> Summary:
    """Summarise the finished runs of a figure."""
    request = plan.request
    finished = {run.planned.name: finished_run(run.planned.folder) for run in [*plan.runs, *plan.tuning]}
    curves: dict[str, dict[int, Record]] = {curve.id: {} for curve in request.figure.curves}
    machine = ""
    for run in plan.runs:
        if (done := finished[run.planned.name]) is not None:
            curves[run.curve][run.seed] = make_record(done)
            machine = machine or f"{done.info.get('cpu', '?')}, torch {done.info.get('torch', '?')}"
    experiment = [*plan.runs, *plan.tuning][0].planned.experiment
    target = experiment.target_accuracy
    tuning = [
        {
            "curve": run.curve,
            "value": run.candidate,
            "seed": run.seed,
            "rounds": score.rounds,
            "best": _rounded(score.best or 0.0),
            "seconds": _seconds(done),
        }
        for run in plan.tuning
        if (done := finished[run.planned.name]) is not None and (score := score_trial(run)) is not None
    ]
    return Summary(
        figure=request.figure.name,
        dataset=request.dataset,
        rounds=max(run.planned.experiment.rounds for run in [*plan.runs, *plan.tuning]),
        target=target,
        quick=request.quick,
        changes=list(request.changes),
        tuned=dict(plan.tuned),
        tuning=tuning,
        machine=machine,
        curves=curves,
    )


def make_record(run: Run) -> Record:
    return Record(
        run=run.name,
        seed=int(run.spec["seed"]),
        limit=int(run.spec["rounds"]),
        ended=str((run.result or {})["stopped_by"]),
        accuracy=[(int(t), _rounded(value)) for t, value in run.accuracy],
        numbers={name: _rounded(value) for name, value in telemetry(run.metrics, run.clients).items()},
        seconds=_seconds(run),
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
    return round(sum(float(line.get("seconds", 0.0)) for line in run.timing), 1)


def _rounded(value: float) -> float:
    """Four digits after the point, or four significant digits for small and large numbers."""
    if float(value).is_integer():
        return value
    return round(value, 4) if 0.1 <= abs(value) < 10 else float(f"{value:.4g}")


def write_summary(summary: Summary, path: Path) -> None:
    """Write JSON with one line for each key and each record, so that changes show line by line."""
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in vars(summary).items() if k != "curves"]
    curves = []
    for curve, records in summary.curves.items():
        rows = [json.dumps(_pack(record), separators=(",", ":")) for _, record in sorted(records.items())]
        inner = "\n   " + ",\n   ".join(rows) + "\n  " if rows else ""
        curves.append(f"  {json.dumps(curve)}: [{inner}]")
    lines.append(' "curves": {\n' + ",\n".join(curves) + "\n }")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_summary(path: Path) -> Summary:
    try:
        table = json.loads(path.read_text())
        if "panel" in table:  # the key of dragfl 0.1
            table["figure"] = table.pop("panel")
        table["changes"] = [rename_override(change) for change in table["changes"]]
        curves = {curve: {r["seed"]: _unpack(r) for r in records} for curve, records in table.pop("curves").items()}
        return Summary(**table, curves=curves)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedRun(
            f"{path}: not a readable summary ({error}); delete it and run `dragfl reproduce {path.stem} --judge`"
        ) from None


def _pack(record: Record) -> dict[str, Any]:
    """Where evaluations are evenly spaced, only their values and the spacing are stored."""
    table = dict(vars(record))
    rounds = [t for t, _ in record.accuracy]
    every = rounds[0] if rounds else 1
    if rounds == [every * (i + 1) for i in range(len(rounds))]:
        table["every"], table["accuracy"] = every, [value for _, value in record.accuracy]
    return table


def _unpack(table: dict[str, Any]) -> Record:
    every, values = table.pop("every", None), table.pop("accuracy")
    pairs = [(every * (i + 1), v) for i, v in enumerate(values)] if every else [(int(t), float(v)) for t, v in values]
    return Record(**table, accuracy=pairs)

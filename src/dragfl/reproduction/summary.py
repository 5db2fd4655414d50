"""What is kept of a run: its accuracy curve and a few numbers, small enough to live beside the documentation.

A record is computed from a run directory alone. A panel's summary is a JSON file: how it was run, and a record for
every curve and seed. The judge and the page read summaries, so both can be repeated without running anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from dragfl import atomic
from dragfl.errors import DamagedRun
from dragfl.reproduction import figure as panel
from dragfl.reproduction.plan import Laid, finished
from dragfl.runs.directory import Run

WINDOW = 100  # the last rounds, over which final accuracy and its unrest are taken; the first ones, for cosines
DIGITS = 4
NUMBERS = (  # of a record, see `numbers_of`
    "bytes", "step_ratio", "mean_norm", "pairwise_cosine", "reference_norm", "shortened", "against", "reversed",
    "over_reference", "skipped",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One finished run."""

    run: str  # its name
    seed: int
    limit: int  # the rounds it was given
    ended: str  # "rounds", "target" or "diverged"
    accuracy: list[tuple[int, float]]  # (round, test accuracy) at every evaluated round
    numbers: dict[str, float] = field(default_factory=dict)  # by name; see `numbers_of`
    seconds: float = 0.0

    @property
    def diverged(self) -> bool:
        """Such a run has reached nothing, whatever it had before."""
        return self.ended == "diverged"

    def rounds_to(self, target: float) -> int | None:
        """The first evaluated round with at least this accuracy, or None."""
        return None if self.diverged else next((t for t, value in self.accuracy if value >= target), None)

    @property
    def final(self) -> float:
        """Mean accuracy over the evaluations of the last rounds."""
        return 0.0 if self.diverged else fmean(last(self.accuracy))

    @property
    def mean(self) -> float:
        """Mean accuracy over all evaluations: who is fast has more of it."""
        return 0.0 if self.diverged or not self.accuracy else fmean(value for _, value in self.accuracy)

    @property
    def best(self) -> float:
        return max((value for _, value in self.accuracy), default=0.0)

    @property
    def unrest(self) -> float:
        """Standard deviation of the accuracy over the evaluations of the last rounds."""
        return inf if self.diverged else pstdev(last(self.accuracy))


def last(accuracy: Sequence[tuple[int, float]]) -> list[float]:
    """The values of the last 100 rounds, or of the last half of a shorter run."""
    if not accuracy:
        return [0.0]
    end = accuracy[-1][0]
    return [value for t, value in accuracy if t > end - min(WINDOW, end // 2 or 1)]


@dataclass(frozen=True)
class Summary:
    """A panel as it was run."""

    panel: str
    dataset: str
    rounds: int  # given to every run
    target: float | None
    quick: bool
    changes: list[str]  # from the command line
    tuned: dict[str, Any]  # curve -> the value chosen on the tuning seeds
    tuning: list[dict[str, Any]]  # what it was chosen from: curve, value, seed, rounds to the target, best accuracy
    machine: str
    curves: dict[str, dict[int, Record]]  # curve -> seed -> record

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for records in self.curves.values() for seed in records})

    @property
    def changed(self) -> list[str]:
        """What the command line changed; to choose among the panel's own datasets is no change."""
        own = [f"data.dataset={name}" for name in panel.load(self.panel).datasets]
        return [change for change in self.changes if change not in own]

    @property
    def seconds(self) -> float:
        """On one core, all runs together, tuning included."""
        made = sum(record.seconds for records in self.curves.values() for record in records.values())
        return made + sum(float(trial["seconds"]) for trial in self.tuning)


def summarise(laid: Laid) -> Summary:
    """What there is of a panel: every run that has ended."""
    curves: dict[str, dict[int, Record]] = {curve.id: {} for curve in laid.panel.curve}
    machine = ""
    for run in laid.runs:
        done = finished(run.planned.folder)
        if done is not None:
            curves[run.curve][run.seed] = record_of(done)
            machine = machine or f"{done.info.get('cpu', '?')}, torch {done.info.get('torch', '?')}"
    one = laid.runs[0].planned.experiment if laid.runs else laid.tuning[0].planned.experiment
    trials = [(run, finished(run.planned.folder)) for run in laid.tuning]
    tuning = [
        {
            "curve": run.curve,
            "value": run.candidate,
            "seed": run.seed,
            "rounds": None if one.target_accuracy is None else done.rounds_to(one.target_accuracy),
            "best": _short((done.result or {}).get("best_accuracy") or 0.0),
            "seconds": round(seconds_of(done), 1),
        }
        for run, done in trials
        if done is not None
    ]
    return Summary(
        laid.panel.name,
        laid.scale.dataset,
        one.rounds,
        one.target_accuracy,
        laid.scale.quick,
        list(laid.scale.changes),
        dict(laid.tuned),
        tuning,
        machine,
        curves,
    )


def record_of(run: Run) -> Record:
    """The record of a finished run."""
    result = run.result or {}
    accuracy = [(int(t), _short(value)) for t, value in run.accuracy]
    return Record(
        run.name,
        int(run.spec["seed"]),
        int(run.spec["rounds"]),
        str(result["stopped_by"]),
        accuracy,
        {name: _short(value) for name, value in numbers_of(run).items()},
        round(seconds_of(run), 1),
    )


def seconds_of(run: Run) -> float:
    """Seconds of all rounds, evaluation included."""
    return float(sum(line.get("seconds", 0.0) for line in run.timing))


def numbers_of(run: Run) -> dict[str, float]:
    """The numbers that claims ask for, where the run has what they are made of.

    | name | what |
    |---|---|
    | bytes | sent in a round, up and down, all clients together: the mean over rounds |
    | step_ratio | median of the length of the step over that of the mean update |
    | mean_norm | median length of the mean update over the last rounds: what is left of the gradient |
    | pairwise_cosine | mean cosine between pairs of (dragged) updates, mean over the first 100 rounds |
    | reference_norm | median length of the reference, for BR-DRAG the root update |
    | shortened | share of (client, round) in which dragging shortened the component along the reference |
    | against | share of (honest client, round) with a cosine to the reference of at most 0 |
    | reversed | share of (attacker, round) whose own part got a negative weight, λ > 1 |
    | over_reference | share of rounds whose step was longer than the reference |
    | skipped | share of rounds in which the model did not move |
    """
    rows = run.metrics
    if not rows:
        return {}
    out = {"bytes": fmean(row["bytes_up"] + row["bytes_down"] for row in rows)}
    ratios = _numbers(rows, "step_ratio")
    if ratios:
        out["step_ratio"] = median(ratios)
    norms = _numbers(rows[-WINDOW:], "mean_norm")
    if norms:
        out["mean_norm"] = median(norms)
    pairs = _numbers(rows[:WINDOW], "pairwise_cosine")
    if pairs:
        out["pairwise_cosine"] = fmean(pairs)
    bounded = [(row["step_norm"], row["reference_norm"]) for row in rows if "reference_norm" in row]
    if bounded:
        out["reference_norm"] = median(r for _, r in bounded)
        out["over_reference"] = fmean(step > r * (1 + 1e-5) for step, r in bounded)
    out["skipped"] = fmean("skipped" in row or row.get("step_norm") == 0.0 for row in rows)
    return out | _of_clients(run.clients)


def _of_clients(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    honest: list[bool] = []
    reversals: list[bool] = []
    shortened: list[bool] = []
    for line in lines:
        if "cosine" not in line:
            continue
        lams = line.get("divergence", [None] * len(line["cosine"]))
        for x, lam, attacks in zip(line["cosine"], lams, line["attacker"], strict=True):
            if x is None:
                continue
            if not attacks:
                honest.append(x <= 0.0)
            if lam is not None:
                shortened.append((1.0 - lam) * x + lam < x - 1e-6)
                if attacks:
                    reversals.append(lam > 1.0)
    named = {"against": honest, "reversed": reversals, "shortened": shortened}
    return {name: fmean(values) for name, values in named.items() if values}


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in rows if isinstance(row.get(name), int | float)]


def _short(value: float) -> float:
    """Whole numbers as they are; else four digits after the point, or four that count in small and large numbers."""
    if float(value).is_integer():
        return value
    return round(value, DIGITS) if 0.1 <= abs(value) < 10 else float(f"{value:.{DIGITS}g}")


def write(summary: Summary, path: Path) -> None:
    """As JSON, curves thinned to their values where every evaluation is as far from the one before."""
    table = {k: v for k, v in vars(summary).items() if k != "curves"}
    table["curves"] = {
        curve: [_packed(record) for _, record in sorted(records.items())] for curve, records in summary.curves.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, _lines(table))


def read(path: Path) -> Summary:
    try:
        table = json.loads(path.read_text())
        curves = {c: {r["seed"]: _unpacked(r) for r in records} for c, records in table.pop("curves").items()}
        return Summary(**table, curves=curves)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedRun(
            f"{path}: cannot be read as the summary of a panel ({error}); delete it, "
            f"`dragfl paper {path.stem} --judge` makes it anew"
        ) from None


def _packed(record: Record) -> dict[str, Any]:
    table = dict(vars(record))
    rounds = [t for t, _ in record.accuracy]
    every = rounds[0] if rounds else 1
    if rounds == [every * (i + 1) for i in range(len(rounds))]:
        table["every"], table["accuracy"] = every, [value for _, value in record.accuracy]
    return table


def _unpacked(table: dict[str, Any]) -> Record:
    every = table.pop("every", None)
    values = table.pop("accuracy")
    pairs = [(every * (i + 1), v) for i, v in enumerate(values)] if every else [(int(t), float(v)) for t, v in values]
    return Record(**table, accuracy=pairs)


def _lines(table: Mapping[str, Any]) -> str:
    """A line for every key and every record: short enough to look at, and changes show line by line."""
    rows = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in table.items() if k != "curves"]
    curves = []
    for curve, records in table["curves"].items():
        inner = ",\n".join(f"   {json.dumps(record, separators=(',', ':'))}" for record in records)
        curves.append(f"  {json.dumps(curve)}: [" + (f"\n{inner}\n  ]" if records else "]"))
    return "{\n" + ",\n".join([*rows, ' "curves": {\n' + ",\n".join(curves) + "\n }"]) + "\n}\n"

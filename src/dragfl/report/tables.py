"""The summary table: one row for each group of runs that differ only in their seed. Needs no torch, no matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from dragfl.report.find import CLASS_METRIC, RunLike, find_runs
from dragfl.report.groups import Group, group_runs, seed_of
from dragfl.report.labels import NOT_SET
from dragfl.report.numbers import (
    MeanStd,
    RoundsToTarget,
    format_bytes,
    format_diverged,
    format_range,
    format_seconds,
    format_seeds,
    mean_std,
)
from dragfl.report.problems import Problem, data_versions, headings, problem_of, short_labels
from dragfl.report.targets import costs_to_target, rounds_completed, rounds_to_target
from dragfl.runs.directory import Run

TABLE_NOTE = (
    "Over seeds: median (range) of rounds, mean ± standard deviation of accuracy, mean of bytes; finished runs only. "
    "> N: target not reached in N rounds, larger than all others in the median. Bytes: one run, all clients together."
)
DIVERGED_NOTE = "A diverged run counts as chance level (1 / classes) and as not reaching the target."
INTERVAL_NOTE = "95 % interval: t-interval of the mean, mean ± t s / √n with the sample deviation s of n seeds."
COST_NOTE = (
    "Bytes and seconds to the target: of all rounds up to the first evaluated one at the target; bytes in both "
    "directions, seconds without evaluation. Compare seconds only of runs on one idle machine."
)
CLIENT_NOTE = (
    "Client columns: accuracy of the last evaluated model on each client's own label distribution; worst 10 %: mean "
    "of the lowest decile of clients; variance: over clients, of accuracy as a fraction."
)
CLIENT_METRICS = {
    "client_accuracy_mean": "client mean",
    "client_accuracy_worst_decile": "client worst 10 %",
    "client_accuracy_variance": "client variance",
}
COLUMNS = (  # in this order; a name stands for all columns that begin with it
    "run", "seed", "rounds to", "best accuracy", "final accuracy", "final 95 % interval", *CLIENT_METRICS.values(),
    "bytes up", "bytes down", "bytes to", "seconds to", "rounds",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """The numbers of one group; `cells()` formats them."""

    label: str
    algorithm: str
    attack: str | None
    seeds: tuple[int, ...]
    target: float | None  # the target accuracy, if the spec has one
    rounds_to_target: RoundsToTarget
    best_accuracy: MeanStd | None  # of the best evaluated round of each run; a diverged run counts as chance level
    final_accuracy: MeanStd | None  # of the last evaluated round of each run; a diverged run counts as chance level
    bytes_up: float  # of one run, mean over seeds
    bytes_down: float
    rounds: tuple[int, ...]  # rounds completed, by seed
    planned: int  # rounds in the spec
    unfinished: tuple[int, ...] = ()  # seeds of the runs without a result
    diverged: tuple[int, ...] = ()  # seeds of the runs that diverged
    diverged_at: tuple[int, ...] = ()  # and the rounds in which they did
    target_on: str = "test"  # the data that the target refers to
    bytes_to_target: RoundsToTarget | None = None  # in both directions; None where it was not logged
    seconds_to_target: RoundsToTarget | None = None  # without evaluation; None where timing.jsonl is incomplete
    clients: Mapping[str, MeanStd] = field(default_factory=dict)  # the metrics of CLIENT_METRICS that the runs have
    class_accuracy: tuple[float | None, ...] = ()  # mean over seeds; None for a class without test samples
    spec: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of the first run
    name: str = ""  # that the user gave
    short_label: str = ""  # unique among the rows of the same problem
    data_version: str = ""  # digest of the data, if data of the same name differ

    @property
    def problem(self) -> Problem:
        """Rows with the same problem may be ranked together."""
        return problem_of(self.spec, self.data_version)

    @property
    def all_unfinished(self) -> bool:
        return len(self.unfinished) == len(self.seeds)

    @property
    def all_diverged(self) -> bool:
        """Whether no finished run has a result."""
        return bool(self.diverged) and len(self.diverged) + len(self.unfinished) == len(self.seeds)

    def cells(self) -> dict[str, str]:
        """The row as text, by column name."""
        cells = {"run": self.label, "seed": format_seeds(self.seeds)}
        if self.target is not None:
            data = "" if self.target_on == "test" else f" ({self.target_on} data)"
            target = f"{100 * self.target:g} %{data}"
            cells[f"rounds to {target}"] = str(self.rounds_to_target)
            if self.bytes_to_target is not None and not self.all_diverged:
                cells[f"bytes to {target}"] = self.bytes_to_target.describe(format_bytes)
            if self.seconds_to_target is not None and not self.all_diverged:
                cells[f"seconds to {target}"] = self.seconds_to_target.describe(format_seconds)
        without = format_diverged(self.diverged_at) if self.all_diverged else NOT_SET
        best, final = (None, None) if self.all_diverged else (self.best_accuracy, self.final_accuracy)
        if final is not None and final.interval is not None:
            cells["final 95 % interval"] = final.format_interval()
        for key, value in self.clients.items():
            variance = key.endswith("variance")
            cells[CLIENT_METRICS[key]] = f"{value.mean:.4f}" if variance else str(value)
        return cells | {
            "best accuracy": str(best or without),
            "final accuracy": str(final or without),
            "bytes up": format_bytes(self.bytes_up),
            "bytes down": format_bytes(self.bytes_down),
            "rounds": self._format_rounds(),
        }

    def _format_rounds(self) -> str:
        """`600`; `37 of 600 (unfinished)`; `12–600 of 600 (diverged at round 13: seed 1)`."""
        states = [("unfinished", self.unfinished)]
        states += [(format_diverged(self.diverged_at), self.diverged)] if self.diverged else []
        marks = [
            name if seeds == self.seeds else f"{name}: seed {format_seeds(seeds)}" for name, seeds in states if seeds
        ]
        rounds = format_range(self.rounds)
        return f"{rounds} of {self.planned} ({', '.join(marks)})" if marks else rounds


def summarize_runs(runs: RunLike | Sequence[RunLike]) -> list[Row]:
    """One row for each group of runs that differ only in their seed, the best row of each attack first."""
    return summarize_groups(group_runs(find_runs(runs)))


def summarize_groups(groups: Sequence[Group]) -> list[Row]:
    """Rows sorted by dataset, partition and attack, then rounds to the target accuracy, then best accuracy."""

    def rank(row: Row) -> tuple[str, str, str, str, float, float]:
        rounds = row.rounds_to_target.median
        best = row.best_accuracy.mean if row.best_accuracy else 0.0
        dataset, partition, attack = row.problem
        return dataset, partition, row.attack or "", attack, rounds if math.isfinite(rounds) else math.inf, -best

    rows = sorted(map(_summarize_group, groups, data_versions(groups)), key=rank)
    known = ((row.label, row.spec, row.name, row.problem) for row in rows)
    short = short_labels(*zip(*known, strict=True)) if rows else []
    return [replace(row, short_label=label) for row, label in zip(rows, short, strict=True)]


def split_by_problem(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """(heading, rows with short labels) for each dataset, partition and attack; no heading for a single one."""
    titles = headings(row.problem for row in rows)
    if len(titles) == 1:
        return [("", list(rows))]
    return [
        (title, [replace(row, label=row.short_label) for row in rows if row.problem == problem])
        for problem, title in titles.items()
    ]


def _summarize_group(group: Group, data_version: str) -> Row:
    counted = [run for run in group.runs if run.finished] or group.runs  # unfinished runs would bias the means
    curves = [curve for run in counted if (curve := judged_accuracies(run))]
    diverged = [run for run in group.runs if run.diverged]
    target = group.spec.get("target_accuracy")
    bytes_to_target, seconds_to_target = costs_to_target(group.runs, target)
    return Row(
        label=group.label,
        algorithm=group.algorithm,
        attack=group.attack,
        seeds=group.seeds,
        target=None if target is None else float(target),
        rounds_to_target=rounds_to_target(group.runs, target),
        best_accuracy=mean_std([max(curve) for curve in curves]),
        final_accuracy=mean_std([curve[-1] for curve in curves]),
        bytes_up=fmean(_total_bytes(run, "bytes_up") for run in counted),
        bytes_down=fmean(_total_bytes(run, "bytes_down") for run in counted),
        rounds=tuple(rounds_completed(run) for run in group.runs),
        planned=int(group.spec.get("rounds", 0)),
        unfinished=tuple(seed_of(run) for run in group.runs if not run.finished),
        diverged=tuple(map(seed_of, diverged)),
        diverged_at=tuple(run.diverged_at or 0 for run in diverged),
        target_on=group.runs[0].target_on,
        bytes_to_target=bytes_to_target,
        seconds_to_target=seconds_to_target,
        clients={key: value for key in CLIENT_METRICS if (value := _client_metric(counted, key)) is not None},
        class_accuracy=_class_accuracy(counted),
        spec=group.spec,
        name=group.name,
        data_version=data_version,
    )


def judged_accuracies(run: Run) -> list[float]:
    """The accuracies of the evaluated rounds; of a diverged run only chance level, whatever it reached before."""
    return [run.chance] if run.diverged else [value for _, value in run.accuracy]


def _client_metric(runs: Sequence[Run], key: str) -> MeanStd | None:
    """A metric of the last round that has it; a diverged run counts as chance level, and has no variance."""
    if not any(run.values(key) for run in runs):
        return None
    values = []
    for run in runs:
        if run.diverged:
            values += [] if key.endswith("variance") else [run.chance]
        elif found := run.values(key):
            values.append(found[-1][1])
    return mean_std(values)


def _class_accuracy(runs: Sequence[Run]) -> tuple[float | None, ...]:
    """By class, the mean over seeds in the last round that has it; a diverged run counts as chance level."""
    lists = [
        [run.chance if run.diverged and value is not None else value for value in found[-1]]
        for run in runs
        if (found := [m[CLASS_METRIC] for m in run.metrics if m.get(CLASS_METRIC)])
    ]
    known = [[value for value in column if value is not None] for column in zip(*lists, strict=False)]
    return tuple(fmean(values) if values else None for values in known)


def _total_bytes(run: Run, key: str) -> float:
    """The total in the result, else the sum over the rounds so far."""
    result = run.result or {}
    return float(result[key]) if key in result else float(sum(m.get(key, 0) for m in run.metrics))


def format_rows(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """(column names, lines of cells), with columns for each target accuracy among the rows."""
    cells = [row.cells() for row in rows]

    def order(name: str) -> tuple[int, str]:
        place = max((i for i, begin in enumerate(COLUMNS) if name.startswith(begin)), key=lambda i: len(COLUMNS[i]))
        return place, name

    columns = sorted({name for row in cells for name in row}, key=order)
    return columns, [[row.get(name, NOT_SET) for name in columns] for row in cells]


def table_note(rows: Sequence[Row], columns: Sequence[str] | None = None) -> str:
    """How the numbers of the table were computed; `columns`: only of those."""
    names = format_rows(rows)[0] if columns is None else columns
    notes = {
        TABLE_NOTE: ("",),
        DIVERGED_NOTE: ("",) if any(row.diverged for row in rows) else (),
        INTERVAL_NOTE: ("final 95 %",),
        COST_NOTE: ("bytes to", "seconds to"),
        CLIENT_NOTE: ("client",),
    }
    return " ".join(note for note, begins in notes.items() if any(name.startswith(begins) for name in names))

"""Curves and client telemetry read from runs, as plain numbers for the figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import fmean
from typing import Any

from dragfl.report.groups import Group
from dragfl.runs.directory import Run

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Series:
    """Mean and range over the finished seeds at the x values that all of them have.

    Averaging over fewer and fewer seeds would draw jumps that no run made. The tail of a seed that ran longer, and all
    of an unfinished one, is therefore a separate curve in `single`.
    """

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    single: list[Points]
    diverged: Points = field(default_factory=list)  # the last points of the runs that diverged

    @property
    def end(self) -> tuple[float, float] | None:
        """The last point, where the label of the curve is placed; of several with the same x, their mean."""
        ends = [points[-1] for points in self.single] + ([(self.x[-1], self.mean[-1])] if self.x else [])
        last = max((x for x, _ in ends), default=0.0)
        return (last, fmean(y for x, y in ends if x == last)) if ends else None


def group_series(group: Group, points: Callable[[Run], Points]) -> Series:
    """The series of a group, from the (x, y) points of each of its runs."""
    curves = [points(run) for run in group.runs]
    series = average_curves([(run.finished, curve) for run, curve in zip(group.runs, curves, strict=True)])
    return replace(series, diverged=[c[-1] for run, c in zip(group.runs, curves, strict=True) if run.diverged and c])


def average_curves(curves: Sequence[tuple[bool, Points]]) -> Series:
    """One series from the (finished, points) of several seeds."""
    averaged = [c for finished, c in curves if finished and c] or [c for _, c in curves if c]
    tables = [dict(c) for c in averaged]
    common = sorted(set[float]().union(*tables).intersection(*tables)) if tables else []
    columns = [[table[x] for table in tables] for x in common]
    end = common[-1] if common else -math.inf
    single = [[p for p in c if p[0] >= end] for c in averaged] + [c for _, c in curves if c and c not in averaged]
    return Series(
        common,
        [sum(column) / len(column) for column in columns],
        [min(column) for column in columns],
        [max(column) for column in columns],
        [c for c in single if len(c) > 1 or (c and not common)],
    )


def points_by_round(key: str) -> Callable[[Run], Points]:
    """(round, value) of a metric, where it was measured and is finite."""
    return lambda run: _finite_points((m["round"], m.get(key)) for m in run.metrics)


def accuracy_by_bytes(run: Run) -> Points:
    """(bytes sent so far in both directions, accuracy)."""
    sent = accumulate(m.get("bytes_up", 0) + m.get("bytes_down", 0) for m in run.metrics)
    return _finite_points(zip(sent, (m.get("accuracy") for m in run.metrics), strict=True))


def parse_number(value: Any) -> float:
    """A logged value as a float; logs contain "nan" and "inf" as strings, and null for values not measured."""
    return math.nan if value is None else float(value)


def _finite_points(pairs: Iterable[tuple[float, Any]]) -> Points:
    return [(float(x), y) for x, value in pairs if math.isfinite(y := parse_number(value))]


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """The mean over at most `window` values around each value; fewer at the ends."""
    half = window // 2
    return [sum(part) / len(part) for part in (values[max(0, i - half) : i + half + 1] for i in range(len(values)))]


@dataclass(frozen=True)
class ClientTable:
    """Client telemetry of a run: one row for each client that was ever sampled, one column for each round."""

    key: str
    clients: list[int]  # attackers first, then by id
    attackers: int  # how many of the rows are attackers
    rounds: list[int]
    value: list[list[float]]  # NaN: not sampled; infinite: sampled and dropped
    attacks: list[tuple[int, int]]  # (row, column) of attacks, where the set of attackers changes between rounds


def client_table(run: Run, keys: Sequence[str]) -> ClientTable | None:
    """The first of these telemetry keys that the run has, as a table; None if it has none of them."""
    key = next((k for k in keys if any(k in line for line in run.clients)), None)
    if key is None:
        return None
    roles = {(c, flag) for line in run.clients for c, flag in zip(line["client"], _attacker_flags(line), strict=True)}
    seen, attackers = {c for c, _ in roles}, {c for c, flag in roles if flag}
    fixed = len(roles) == len(seen)  # no client is an attacker in some rounds only
    clients = sorted(seen, key=lambda c: (fixed and c not in attackers, c))
    row = {client: i for i, client in enumerate(clients)}
    value = [[math.nan] * len(run.clients) for _ in clients]
    attacks = []
    for t, line in enumerate(run.clients):
        logged = line.get(key, [None] * len(line["client"]))
        for client, flag, number in zip(line["client"], _attacker_flags(line), map(parse_number, logged), strict=True):
            value[row[client]][t] = number if math.isfinite(number) else math.inf
            if flag and not fixed:
                attacks.append((row[client], t))
    return ClientTable(key, clients, len(attackers) if fixed else 0, [m["round"] for m in run.clients], value, attacks)


def values_by_role(runs: Sequence[Run], key: str) -> tuple[list[float], list[float]]:
    """All finite values of a telemetry key: those of honest clients, and those of attackers."""
    parts: tuple[list[float], list[float]] = ([], [])
    for line in (line for run in runs for line in run.clients if key in line):
        for logged, flag in zip(line[key], _attacker_flags(line), strict=True):
            if math.isfinite(value := parse_number(logged)):
                parts[flag].append(value)
    return parts


def _attacker_flags(line: Mapping[str, Any]) -> list[bool]:
    return [bool(flag) for flag in line.get("attacker") or [False] * len(line["client"])]

"""Curves over the seeds of a group: a mean, a band, and honest loose ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from dragfl.report.groups import Group
from dragfl.runs.directory import Run

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Series:
    """`mean`, `low` and `high` at the places all finished seeds have; what only some have is in `loose`.

    Averaging over fewer and fewer seeds would draw jumps that no run made, so the tail of a seed that ran longer, and
    the whole of an unfinished one, stays a line of its own.
    """

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    loose: list[Points]

    @property
    def end(self) -> tuple[float, float] | None:
        """The last point, where a direct label goes."""
        if self.x:
            return self.x[-1], self.mean[-1]
        ends = [points[-1] for points in self.loose if points]
        return max(ends) if ends else None


def series(group: Group, points: Callable[[Run], Points]) -> Series:
    """The curve of a group, from the (x, y) points of each of its runs."""
    return joined([(run.finished, points(run)) for run in group.runs])


def joined(curves: Sequence[tuple[bool, Points]]) -> Series:
    """One curve of the (finished, points) of several seeds."""
    main = [c for finished, c in curves if finished and c] or [c for _, c in curves if c]
    tables = [dict(c) for c in main]
    common = sorted(set[float]().union(*tables).intersection(*tables)) if tables else []
    columns = [[table[x] for table in tables] for x in common]
    end = common[-1] if common else -math.inf
    loose = [[p for p in c if p[0] >= end] for c in main] + [c for _, c in curves if c and c not in main]
    return Series(
        common,
        [sum(column) / len(column) for column in columns],
        [min(column) for column in columns],
        [max(column) for column in columns],
        [c for c in loose if len(c) > 1 or (c and not common)],
    )


def metric(key: str) -> Callable[[Run], Points]:
    """(round, value) of a metric, where it was measured and is a finite number."""
    return lambda run: _finite((m["round"], m.get(key)) for m in run.metrics)


def by_bytes_points(key: str) -> Callable[[Run], Points]:
    """(bytes sent so far, up and down, value) of a metric."""

    def points(run: Run) -> Points:
        sent = accumulate(m.get("bytes_up", 0) + m.get("bytes_down", 0) for m in run.metrics)
        return _finite(zip(sent, (m.get(key) for m in run.metrics), strict=True))

    return points


def number(value: Any) -> float:
    """A logged value as a float; logs write NaN and infinities as words, and null where nothing was measured."""
    return math.nan if value is None else float(value)


def _finite(pairs: Iterable[tuple[float, Any]]) -> Points:
    return [(float(x), y) for x, value in pairs if math.isfinite(y := number(value))]


def smooth(values: Sequence[float], window: int) -> list[float]:
    """A running mean over at most `window` values around each; shorter at the ends."""
    half = window // 2
    return [sum(part) / len(part) for part in (values[max(0, i - half) : i + half + 1] for i in range(len(values)))]


@dataclass(frozen=True)
class Cells:
    """Per-client telemetry of a run as a table: a row a client that was ever sampled, a column a round."""

    key: str
    clients: list[int]  # attackers first, then by number
    attackers: int  # how many of the rows are attackers
    rounds: list[int]
    value: list[list[float]]  # NaN: not sampled; infinite: sampled and dropped
    redrawn: list[tuple[int, int]]  # (row, column) of attacks, where attackers change by round and rows mark nobody


def cells(run: Run, keys: Sequence[str]) -> Cells | None:
    """The first of these columns that the run has, or None."""
    key = next((k for k in keys if any(k in line for line in run.clients)), None)
    if key is None:
        return None
    roles = {(c, flag) for line in run.clients for c, flag in zip(line["client"], _flags(line), strict=True)}
    seen, bad = {c for c, _ in roles}, {c for c, flag in roles if flag}
    fixed = len(roles) == len(seen)  # nobody is now an attacker and now not
    clients = sorted(seen, key=lambda c: (fixed and c not in bad, c))
    row = {client: i for i, client in enumerate(clients)}
    value = [[math.nan] * len(run.clients) for _ in clients]
    for t, line in enumerate(run.clients):
        for client, logged in zip(line["client"], line.get(key, [None] * len(line["client"])), strict=True):
            known = number(logged)
            value[row[client]][t] = known if math.isfinite(known) else math.inf
    redrawn = [
        (row[client], t)
        for t, line in enumerate(run.clients)
        for client, flag in zip(line["client"], _flags(line), strict=True)
        if flag and not fixed
    ]
    return Cells(key, clients, len(bad) if fixed else 0, [m["round"] for m in run.clients], value, redrawn)


def split(runs: Sequence[Run], key: str) -> tuple[list[float], list[float]]:
    """All values of a telemetry column, those of honest clients and those of attackers."""
    parts: tuple[list[float], list[float]] = ([], [])
    for line in (line for run in runs for line in run.clients if key in line):
        for logged, flag in zip(line[key], _flags(line), strict=True):
            if math.isfinite(value := number(logged)):
                parts[flag].append(value)
    return parts


def _flags(line: Mapping[str, Any]) -> list[bool]:
    return [bool(flag) for flag in line.get("attacker") or [False] * len(line["client"])]

"""The summary: a row for each group of runs that differ only by seed. Needs neither torch nor matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dragfl.report.groups import Group, RunLike, find_runs, group_runs, seed
from dragfl.report.numbers import Reached, Spread, bytes_text, span_text
from dragfl.runs.directory import Run

if TYPE_CHECKING:
    from rich.table import Table


NOTHING = "—"


@dataclass(frozen=True)
class Row:
    """One group in numbers; `cells()` is the same in words."""

    label: str
    algorithm: str
    attack: str | None
    seeds: tuple[int, ...]
    target: float | None  # the accuracy asked for, if one was
    rounds_to_target: Reached
    best_accuracy: Spread | None  # of the best evaluated round of each run
    final_accuracy: Spread | None  # of the last evaluated round of each run
    bytes_up: float  # of a run, mean over seeds
    bytes_down: float
    rounds: tuple[int, ...]  # run so far, by seed
    planned: int  # rounds asked for
    unfinished: tuple[int, ...] = ()  # seeds of the runs without a result
    diverged: tuple[int, ...] = ()  # seeds of the runs that ended because the model exploded

    def cells(self) -> dict[str, str]:
        """The row as text, by column."""
        cells = {"run": self.label, "seed": ", ".join(map(str, self.seeds))}
        if self.target is not None:
            cells[f"rounds to {100 * self.target:g} %"] = str(self.rounds_to_target)
        return cells | {
            "best accuracy": str(self.best_accuracy or NOTHING),
            "final accuracy": str(self.final_accuracy or NOTHING),
            "bytes up": bytes_text(self.bytes_up),
            "bytes down": bytes_text(self.bytes_down),
            "rounds": self._rounds_text(),
        }

    def _rounds_text(self) -> str:
        """`600`; `37 of 600 (unfinished)`; `12–600 of 600 (diverged: seed 1)`."""
        marks = [_mark(name, seeds, self.seeds) for name, seeds in self._troubles() if seeds]
        return f"{span_text(self.rounds)} of {self.planned} ({', '.join(marks)})" if marks else span_text(self.rounds)

    def _troubles(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return ("unfinished", self.unfinished), ("diverged", self.diverged)


def _mark(name: str, seeds: tuple[int, ...], among: tuple[int, ...]) -> str:
    return name if seeds == among else f"{name}: seed {', '.join(map(str, seeds))}"


def grid(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """(headings, cells) of the summary; a column for each target accuracy that was asked for, none where none was."""
    cells = [row.cells() for row in rows]
    targets = sorted({name for row in cells for name in row if name.startswith("rounds to")})
    headings = ["run", "seed", *targets, "best accuracy", "final accuracy", "bytes up", "bytes down", "rounds"]
    return headings, [[row.get(name, NOTHING) for name in headings] for row in cells]


def table(runs: RunLike | Sequence[RunLike]) -> list[Row]:
    """A row for each group of runs that differ only by seed, the best of each attack first."""
    return ranked(rows(group_runs(find_runs(runs))))


def rows(groups: Sequence[Group]) -> list[Row]:
    """A row for each group, in their order."""
    return [_row(group) for group in groups]


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The rows as a reader wants them: the best of each attack first."""
    return sorted(rows, key=_rank)


def _rank(row: Row) -> tuple[str, float, float]:
    """By attack, then by rounds to the target (never last), then by best accuracy."""
    rounds = row.rounds_to_target.median
    best = row.best_accuracy.mean if row.best_accuracy else 0.0
    return row.attack or "", rounds if math.isfinite(rounds) else math.inf, -best


def _row(group: Group) -> Row:
    counted = [run for run in group.runs if run.finished] or group.runs  # half a run would bend the means
    curves = [curve for run in counted if (curve := [value for _, value in accuracies(run)])]
    target = group.spec.get("target_accuracy")
    return Row(
        label=group.label,
        algorithm=group.algorithm,
        attack=group.attack,
        seeds=group.seeds,
        target=None if target is None else float(target),
        rounds_to_target=_reached(group.runs, target),
        best_accuracy=Spread.of([max(curve) for curve in curves]),
        final_accuracy=Spread.of([curve[-1] for curve in curves]),
        bytes_up=fmean(_total(run, "bytes_up") for run in counted),
        bytes_down=fmean(_total(run, "bytes_down") for run in counted),
        rounds=tuple(rounds_run(run) for run in group.runs),
        planned=int(group.spec.get("rounds", 0)),
        unfinished=tuple(seed(run) for run in group.runs if not run.finished),
        diverged=tuple(seed(run) for run in group.runs if (run.result or {}).get("stopped_by") == "diverged"),
    )


def accuracies(run: Run) -> list[tuple[int, float]]:
    """(round, accuracy) of the evaluated rounds; a value that is not a number is left out."""
    return [(t, float(value)) for t, value in run.accuracy if value is not None and math.isfinite(float(value))]


def rounds_run(run: Run) -> int:
    """Rounds completed so far."""
    return int(run.metrics[-1]["round"]) if run.metrics else int((run.result or {}).get("rounds", 0))


def _total(run: Run, key: str) -> float:
    """The bytes of a run: what its result says, else what its rounds sum to."""
    result: dict[str, Any] = run.result or {}
    return float(result[key]) if key in result else float(sum(m.get(key, 0) for m in run.metrics))


def _reached(runs: Sequence[Run], target: float | None) -> Reached:
    if target is None:
        return Reached(())
    rounds: list[int] = []
    censored: list[int] = []
    still: list[int] = []
    for run in runs:
        first = next((t for t, value in accuracies(run) if value >= target), None)
        if first is not None:
            rounds.append(first)
        else:
            (censored if run.finished else still).append(rounds_run(run))
    return Reached(tuple(rounds), tuple(censored), tuple(still))


def rich_table(rows: Sequence[Row]) -> Table:
    """The summary for a terminal; seeds that all rows share are said below, to fit narrow ones."""
    from rich.markup import escape
    from rich.table import Table

    headings, lines = grid(rows)
    shared = len({row.seeds for row in rows}) == 1
    shown = [i for i, name in enumerate(headings) if not (shared and name == "seed")]
    below = f"Seed {', '.join(map(str, rows[0].seeds))}. {note(rows)}" if shared else note(rows)
    out = Table(
        box=None, pad_edge=False, collapse_padding=True, header_style="bold", caption=below, caption_justify="left"
    )
    for i in shown:
        words = headings[i] in ("run", "seed")
        out.add_column(headings[i], justify="left" if words else "right", no_wrap=headings[i] == "run")
    for row, cells in zip(rows, lines, strict=True):
        out.add_row(*(escape(_narrow(cells[i])) for i in shown), style="dim" if row.unfinished else "")
    return out


def _narrow(cell: str) -> str:
    """`not reached (> 100)` as `> 100`: a terminal is narrow, and the caption says what it means."""
    return cell.removeprefix("not reached (").removesuffix(")") if cell.startswith("not reached (") else cell


def note(rows: Sequence[Row]) -> str:
    """What the figures of the table mean, said only where it applies."""
    parts = ["Bytes are those of one run, all clients together."]
    if any(len(row.seeds) > 1 for row in rows):
        parts.append("Over seeds: median (range) of rounds, mean ± standard deviation of accuracy, mean of bytes.")
    if any(row.rounds_to_target.censored for row in rows):
        parts.append("> N: not reached in N rounds, which counts as later than all that did.")
    if any(0 < len(row.unfinished) < len(row.seeds) for row in rows):
        parts.append("Means are over finished runs.")
    return " ".join(parts)

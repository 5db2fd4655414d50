"""The summary table: one row for each group of runs that differ only in their seed. Needs no torch, no matplotlib."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from dragfl.report.groups import Group, RunLike, find_runs, group_runs, seed_of
from dragfl.report.labels import NOT_SET
from dragfl.report.numbers import MeanStd, RoundsToTarget, format_bytes, format_diverged, format_range, mean_std
from dragfl.runs.directory import Run

if TYPE_CHECKING:
    from rich.table import Table

TABLE_NOTE = (
    "Over seeds: median (range) of rounds, mean ± standard deviation of accuracy, mean of bytes; finished runs only. "
    "> N: target not reached in N rounds, larger than all others in the median. Bytes: one run, all clients together."
)
DIVERGED_NOTE = "A diverged run counts as chance level (1 / classes) and as not reaching the target."


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

    @property
    def all_diverged(self) -> bool:
        """Whether no finished run has a result."""
        return bool(self.diverged) and len(self.diverged) + len(self.unfinished) == len(self.seeds)

    def cells(self) -> dict[str, str]:
        """The row as text, by column name."""
        cells = {"run": self.label, "seed": ", ".join(map(str, self.seeds))}
        if self.target is not None:
            data = "" if self.target_on == "test" else f" ({self.target_on} data)"
            cells[f"rounds to {100 * self.target:g} %{data}"] = str(self.rounds_to_target)
        without = format_diverged(self.diverged_at) if self.all_diverged else NOT_SET
        best, final = (None, None) if self.all_diverged else (self.best_accuracy, self.final_accuracy)
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
            name if seeds == self.seeds else f"{name}: seed {', '.join(map(str, seeds))}"
            for name, seeds in states
            if seeds
        ]
        rounds = format_range(self.rounds)
        return f"{rounds} of {self.planned} ({', '.join(marks)})" if marks else rounds


def summarize_runs(runs: RunLike | Sequence[RunLike]) -> list[Row]:
    """One row for each group of runs that differ only in their seed, the best row of each attack first."""
    return summarize_groups(group_runs(find_runs(runs)))


def summarize_groups(groups: Sequence[Group]) -> list[Row]:
    """Rows sorted by attack, then rounds to the target accuracy, then best accuracy."""

    def rank(row: Row) -> tuple[str, float, float]:
        rounds = row.rounds_to_target.median
        best = row.best_accuracy.mean if row.best_accuracy else 0.0
        return row.attack or "", rounds if math.isfinite(rounds) else math.inf, -best

    return sorted(map(_summarize_group, groups), key=rank)


def _summarize_group(group: Group) -> Row:
    counted = [run for run in group.runs if run.finished] or group.runs  # unfinished runs would bias the means
    curves = [curve for run in counted if (curve := judged_accuracies(run))]
    diverged = [run for run in group.runs if run.diverged]
    target = group.spec.get("target_accuracy")
    return Row(
        label=group.label,
        algorithm=group.algorithm,
        attack=group.attack,
        seeds=group.seeds,
        target=None if target is None else float(target),
        rounds_to_target=_rounds_to_target(group.runs, target),
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
    )


def judged_accuracies(run: Run) -> list[float]:
    """The accuracies of the evaluated rounds; of a diverged run only chance level, whatever it reached before."""
    return [run.chance] if run.diverged else [value for _, value in run.accuracy]


def rounds_completed(run: Run) -> int:
    return int(run.metrics[-1]["round"]) if run.metrics else int((run.result or {}).get("rounds", 0))


def _total_bytes(run: Run, key: str) -> float:
    """The total in the result, else the sum over the rounds so far."""
    result = run.result or {}
    return float(result[key]) if key in result else float(sum(m.get(key, 0) for m in run.metrics))


def _rounds_to_target(runs: Sequence[Run], target: float | None) -> RoundsToTarget:
    if target is None:
        return RoundsToTarget(())
    reached: list[int] = []
    censored: list[int] = []
    unfinished: list[int] = []
    diverged: list[int] = []
    for run in runs:
        if run.diverged_at is not None:
            diverged.append(run.diverged_at)
        elif (first := run.rounds_to(target)) is not None:
            reached.append(first)
        else:
            (censored if run.finished else unfinished).append(rounds_completed(run))
    return RoundsToTarget(tuple(reached), tuple(censored), tuple(unfinished), tuple(diverged))


def format_rows(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """(column names, lines of cells), with one column for each target accuracy among the rows."""
    cells = [row.cells() for row in rows]
    targets = sorted({name for row in cells for name in row if name.startswith("rounds to")})
    columns = ["run", "seed", *targets, "best accuracy", "final accuracy", "bytes up", "bytes down", "rounds"]
    return columns, [[row.get(name, NOT_SET) for name in columns] for row in cells]


def table_note(rows: Sequence[Row]) -> str:
    """How the numbers of the table were computed."""
    return f"{TABLE_NOTE} {DIVERGED_NOTE}" if any(row.diverged for row in rows) else TABLE_NOTE


def rich_table(rows: Sequence[Row]) -> Table:
    """The summary for a terminal; seeds that all rows share are in the caption, to save width."""
    from rich.markup import escape
    from rich.table import Table

    columns, lines = format_rows(rows)
    same_seeds = len({row.seeds for row in rows}) == 1
    shown = [i for i, name in enumerate(columns) if not (same_seeds and name == "seed")]
    caption = (f"Seed {', '.join(map(str, rows[0].seeds))}. " if same_seeds else "") + table_note(rows)
    table = Table(
        box=None, pad_edge=False, collapse_padding=True, header_style="bold", caption=caption, caption_justify="left"
    )
    for i in shown:
        is_text = columns[i] in ("run", "seed")
        table.add_column(columns[i], justify="left" if is_text else "right", no_wrap=columns[i] == "run")
    for row, cells in zip(rows, lines, strict=True):
        table.add_row(*(escape(_shorten(cells[i])) for i in shown), style="dim" if row.unfinished else "")
    return table


def _shorten(cell: str) -> str:
    """`not reached (> 100)` as `> 100`, which the caption explains."""
    return re.sub(r"^not reached \((> \d+)\)", r"\1", cell)

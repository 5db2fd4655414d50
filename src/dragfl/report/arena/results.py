"""The results of an arena, read from `arena.json` and its run directories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from dragfl.errors import DamagedRun
from dragfl.report.arena.detection import auc, rank_attackers
from dragfl.report.numbers import MeanStd, mean_std
from dragfl.report.tables import judged_accuracies
from dragfl.runs.directory import SPEC, Run, load_run

MANIFEST = "arena.json"
WITHOUT_ATTACK = "none"  # the attack name of the runs without attackers


@dataclass(frozen=True)
class Entry:
    """One defence under one attack, over seeds; only finished runs count."""

    runs: tuple[Run, ...] = ()
    unfinished: int = 0  # seeds that have not finished
    reason: str = ""  # why there is no run, if the spec check refused the combination

    @cached_property
    def accuracy(self) -> MeanStd | None:
        """Accuracy of the last evaluated round, over seeds; a diverged run counts as chance level."""
        return mean_std([curve[-1] for run in self.runs if (curve := judged_accuracies(run))])

    @cached_property
    def diverged_at(self) -> tuple[int, ...]:
        """The rounds in which runs diverged."""
        return tuple(run.diverged_at for run in self.runs if run.diverged_at is not None)

    @property
    def all_diverged(self) -> bool:
        return bool(self.runs) and len(self.diverged_at) == len(self.runs)

    @cached_property
    def exceeds_f(self) -> float:
        """The probability that a cohort has more attackers than the defence assumes; 0 if it assumes no number."""
        return max((float(run.spec.get("attack", {}).get("exceeds_f", 0.0)) for run in self.runs), default=0.0)

    @property
    def value(self) -> float | None:
        """The mean accuracy."""
        return None if self.accuracy is None else self.accuracy.mean

    @cached_property
    def attacker_ranks(self) -> np.ndarray:
        """The ranks of the attackers by suspicion score, all rounds and seeds together."""
        return np.concatenate([np.zeros((0, 2)), *(rank_attackers(run.clients) for run in self.runs)])

    @cached_property
    def auc(self) -> float | None:
        """AUC of the suspicion score, mean over seeds."""
        known = [value for run in self.runs if (value := auc(rank_attackers(run.clients))) is not None]
        return fmean(known) if known else None


@dataclass(frozen=True)
class Matrix:
    """All defences under all attacks, for one partition and one number of attackers."""

    partition: str
    attackers: str  # "6 of 20 clients attack"
    defences: tuple[str, ...]  # the highest worst-case accuracy first
    attacks: tuple[str, ...]
    trusted: frozenset[str]  # the defences that use trusted data
    entries: Mapping[tuple[str, str], Entry]

    @property
    def heading(self) -> str:
        """`6 of 20 clients attack, sorted_shards`."""
        return f"{self.attackers}, {self.partition}"

    def worst_case(self, defence: str) -> tuple[float, str] | None:
        """The lowest accuracy of this defence and the attack, or None without a finished run under attack."""
        values = [(self.entries[defence, attack].value, attack) for attack in self.attacks]
        known = [(value, attack) for value, attack in values if value is not None]
        return min(known, key=lambda case: case[0], default=None)

    def accuracy_drop(self, defence: str, attack: str) -> float | None:
        """Accuracy without attack minus accuracy under this attack."""
        without, under = self.entries[defence, WITHOUT_ATTACK].value, self.entries[defence, attack].value
        return None if without is None or under is None else without - under


@dataclass(frozen=True)
class ArenaResults:
    """All results of an arena so far."""

    note: str  # shown at the top of the page
    seeds: tuple[int, ...]
    matrices: tuple[Matrix, ...]

    @cached_property
    def entries(self) -> list[tuple[str, str, Entry]]:
        """(defence, attack, entry) of all matrices; entries without attack are shared by matrices and listed once."""
        found = {id(e): (d, a, e) for matrix in self.matrices for (d, a), e in matrix.entries.items()}
        return list(found.values())

    @cached_property
    def runs(self) -> list[Run]:
        return [run for _, _, entry in self.entries for run in entry.runs]

    @property
    def unfinished(self) -> int:
        return sum(entry.unfinished for _, _, entry in self.entries)

    def seconds_per_round(self, defence: str) -> float | None:
        """Median seconds of a round without evaluation, over all runs of this defence."""
        known = [
            float(line["seconds"]) - float(line.get("evaluation_seconds", 0.0))
            for name, _, entry in self.entries
            for run in entry.runs
            for line in run.timing
            if name == defence and "seconds" in line
        ]
        return median(known) if known else None


def load_arena(folder: str | Path) -> ArenaResults:
    """Read the results in a folder that `dragfl arena` wrote, finished or not."""
    folder = Path(folder)
    try:
        plan = json.loads((folder / MANIFEST).read_text())
        cells = {key: _load_entry(folder, same) for key, same in _group_by_seed(plan["cells"]).items()}
        matrices = tuple(_make_matrix(plan, cells, p, a) for p in plan["partitions"] for a in plan["attackers"])
        return ArenaResults(str(plan["note"]), tuple(plan["seeds"]), matrices)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedRun(
            f"{folder}: {MANIFEST} is missing or damaged ({error!r}); give a folder that `dragfl arena` wrote"
        ) from None


def _group_by_seed(cells: Sequence[Mapping[str, Any]]) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        key = tuple(str(cell[name]) for name in ("defence", "attack", "partition", "attackers"))
        groups.setdefault(key, []).append(cell)
    return groups


def _load_entry(folder: Path, cells: Sequence[Mapping[str, Any]]) -> Entry:
    paths = [folder / str(cell["run"]) for cell in cells if "run" in cell]
    runs = tuple(run for path in paths if (path / SPEC).is_file() and (run := load_run(path)).finished)
    reason = next((str(cell["reason"]) for cell in cells if "reason" in cell), "")
    return Entry(runs, len(paths) - len(runs), reason)


def _make_matrix(
    plan: Mapping[str, Any], cells: Mapping[tuple[str, ...], Entry], partition: str, attackers: str
) -> Matrix:
    attacks = tuple(plan["attacks"])
    entries = {(d, WITHOUT_ATTACK): cells[d, WITHOUT_ATTACK, partition, "None"] for d in plan["defences"]}
    entries |= {(d, a): cells[d, a, partition, attackers] for d in plan["defences"] for a in attacks}

    matrix = Matrix(partition, attackers, tuple(plan["defences"]), attacks, frozenset(plan["trusted"]), entries)

    def rank(defence: str) -> tuple[float, float]:
        worst, _ = matrix.worst_case(defence) or (-1.0, "")
        return worst, entries[defence, WITHOUT_ATTACK].value or 0.0

    return replace(matrix, defences=tuple(sorted(matrix.defences, key=rank, reverse=True)))

"""What came out of every defence against every attack, read from `arena.json` and the run directories beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from dragfl.errors import DamagedRun
from dragfl.report.arena.detection import auc, places
from dragfl.report.numbers import Spread
from dragfl.report.table import accuracies
from dragfl.runs.directory import SPEC, Run, load_run

MANIFEST = "arena.json"
CLEAN = "none"  # the name of the column in which nobody attacks


@dataclass(frozen=True)
class Entry:
    """One defence against one attack, over seeds; only finished runs count."""

    runs: tuple[Run, ...] = ()
    waiting: int = 0  # seeds that have not finished
    reason: str = ""  # why the defence could not be set up, if it could not

    @cached_property
    def accuracy(self) -> Spread | None:
        """Of the last evaluated round of each run."""
        return Spread.of([curve[-1][1] for run in self.runs if (curve := accuracies(run))])

    @cached_property
    def diverged(self) -> int:
        return sum((run.result or {}).get("stopped_by") == "diverged" for run in self.runs)

    @property
    def value(self) -> float | None:
        """The mean accuracy; a model lost before its first evaluation is worth nothing."""
        if self.accuracy is not None:
            return self.accuracy.mean
        return 0.0 if self.diverged else None

    @cached_property
    def placed(self) -> np.ndarray:
        """Where the rule's suspicion places the attackers, all rounds and seeds together."""
        return np.concatenate([np.zeros((0, 2)), *(places(run.clients) for run in self.runs)])

    @cached_property
    def auc(self) -> float | None:
        """Mean over seeds."""
        known = [value for run in self.runs if (value := auc(places(run.clients))) is not None]
        return fmean(known) if known else None


@dataclass(frozen=True)
class Matrix:
    """All defences against all attacks, for one partition and one number of attackers."""

    partition: str
    attackers: str  # "6 of 20 clients attack"
    defences: tuple[str, ...]  # the one with the best worst case first
    attacks: tuple[str, ...]
    trusted: frozenset[str]
    entries: Mapping[tuple[str, str], Entry]

    def worst(self, defence: str) -> str | None:
        """The attack that hurts this defence most."""
        return _worst(self.entries, defence, self.attacks)

    def worst_value(self, defence: str) -> float | None:
        attack = self.worst(defence)
        return None if attack is None else self.entries[defence, attack].value

    def lost(self, defence: str, attack: str) -> float | None:
        """Accuracy lost against no attack."""
        calm, hurt = self.entries[defence, CLEAN].value, self.entries[defence, attack].value
        return None if calm is None or hurt is None else calm - hurt


def _worst(entries: Mapping[tuple[str, str], Entry], defence: str, attacks: Sequence[str]) -> str | None:
    known = [(value, attack) for attack in attacks if (value := entries[defence, attack].value) is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else None


@dataclass(frozen=True)
class Results:
    """Everything an arena has so far."""

    folder: Path
    name: str
    note: str
    seeds: tuple[int, ...]
    matrices: tuple[Matrix, ...]

    @property
    def defences(self) -> list[str]:
        return list(self.matrices[0].defences)

    @cached_property
    def entries(self) -> list[tuple[str, str, Entry]]:
        """(defence, attack, entry), the clean ones once for each partition."""
        found = {id(e): (d, a, e) for matrix in self.matrices for (d, a), e in matrix.entries.items()}
        return list(found.values())

    @cached_property
    def runs(self) -> list[Run]:
        return [run for _, _, entry in self.entries for run in entry.runs]

    @property
    def waiting(self) -> int:
        return sum(entry.waiting for _, _, entry in self.entries)

    def seconds(self, defence: str) -> float | None:
        """Median seconds of a round without its evaluation, over all runs of this defence."""
        known = [
            float(line["seconds"]) - float(line.get("evaluation_seconds", 0.0))
            for name, _, entry in self.entries
            for run in entry.runs
            for line in run.timing
            if name == defence and "seconds" in line
        ]
        return median(known) if known else None


def load(folder: str | Path) -> Results:
    """The results in a folder that `dragfl arena` made, finished or not."""
    folder = Path(folder)
    try:
        plan = json.loads((folder / MANIFEST).read_text())
        cells = {_place(cell): _entry(folder, same) for same in _by_seed(plan["cells"]) for cell in same[:1]}
        matrices = tuple(_matrix(plan, cells, p, a) for p in plan["partitions"] for a in plan["attackers"])
        return Results(folder, str(plan["name"]), str(plan["note"]), tuple(plan["seeds"]), matrices)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedRun(
            f"{folder}: {MANIFEST} is missing or damaged ({error!r}); give a folder that `dragfl arena` made"
        ) from None


def _place(cell: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(cell[key]) for key in ("defence", "attack", "partition", "attackers"))


def _by_seed(cells: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        found.setdefault(_place(cell), []).append(cell)
    return list(found.values())


def _entry(folder: Path, cells: Sequence[Mapping[str, Any]]) -> Entry:
    paths = [folder / str(cell["run"]) for cell in cells if "run" in cell]
    runs = tuple(run for path in paths if (path / SPEC).is_file() and (run := load_run(path)).finished)
    reason = next((str(cell["reason"]) for cell in cells if "reason" in cell), "")
    return Entry(runs, len(paths) - len(runs), reason)


def _matrix(plan: Mapping[str, Any], cells: Mapping[tuple[str, ...], Entry], partition: str, attackers: str) -> Matrix:
    attacks = tuple(plan["attacks"])
    entries = {(d, CLEAN): cells[d, CLEAN, partition, "None"] for d in plan["defences"]}
    entries |= {(d, a): cells[d, a, partition, attackers] for d in plan["defences"] for a in attacks}

    def rank(defence: str) -> tuple[float, float]:
        attack = _worst(entries, defence, attacks)
        worst = None if attack is None else entries[defence, attack].value
        return -1.0 if worst is None else worst, entries[defence, CLEAN].value or 0.0

    order = tuple(sorted(plan["defences"], key=rank, reverse=True))
    return Matrix(partition, attackers, order, attacks, frozenset(plan["trusted"]), entries)

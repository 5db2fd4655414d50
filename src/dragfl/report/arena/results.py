"""The results of an arena, read from `arena.json` and its run directories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from dragfl.errors import DamagedRun
from dragfl.report.arena.detection import Count, auc, count_flags, flagged_by, rank_attackers
from dragfl.report.numbers import MeanStd, mean_std
from dragfl.report.tables import judged_accuracies
from dragfl.runs.directory import SPEC, Run, load_run

MANIFEST = "arena.json"
CONTROL = "root_only"  # the defence that ignores the clients
WITHOUT_ATTACK = "none"  # the attack name of the runs without attackers


@dataclass(frozen=True)
class Entry:
    """One defence under one attack, over seeds; only finished runs count."""

    runs: tuple[Run, ...] = ()
    unfinished: int = 0  # seeds that have not finished
    reason: str = ""  # why there is no run, if the spec check refused the combination
    failed: Mapping[int, str] = field(default_factory=dict)  # seed -> why its run failed
    strength: Mapping[str, Any] | None = None  # what tuning the attack has selected: setting, selected, candidates

    @cached_property
    def accuracy(self) -> MeanStd | None:
        """Accuracy of the last evaluated round, over seeds; a diverged run counts as chance level."""
        return mean_std(list(self.per_seed.values()))

    @cached_property
    def per_seed(self) -> dict[int, float]:
        """Seed -> accuracy of the last evaluated round."""
        return {int(run.spec["seed"]): curve[-1] for run in self.runs if (curve := judged_accuracies(run))}

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
        return _mean_known(auc(rank_attackers(run.clients)) for run in self.runs)

    @cached_property
    def flagged_by(self) -> str | None:
        """The column of clients.jsonl by which clients are flagged; None if the rule logs neither."""
        return flagged_by(line for run in self.runs for line in run.clients)

    @cached_property
    def flags(self) -> dict[int, dict[int, Count]]:
        """Seed -> client -> in how many rounds it was sampled, attacked, was flagged and caught."""
        return {int(run.spec["seed"]): count_flags(run.clients) for run in self.runs}

    @cached_property
    def true_positive_rate(self) -> float | None:
        """Fraction of attackers flagged, over rounds; mean over seeds."""
        return _mean_known(sum(counts.values(), Count()).true_positive_rate for counts in self.flags.values())

    @cached_property
    def false_positive_rate(self) -> float | None:
        """Fraction of honest clients flagged, over rounds; mean over seeds."""
        return _mean_known(sum(counts.values(), Count()).false_positive_rate for counts in self.flags.values())


def _mean_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass(frozen=True)
class ClientsAdd:
    """The best worst case among the defences with root data, and that of the root data alone."""

    defence: str
    attack: str
    worst_case: float
    root_only: float

    @property
    def difference(self) -> float:
        return self.worst_case - self.root_only


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
        """The lowest accuracy of this defence and the attack; None if an attack has no result, which may be worse."""
        values = [(self.entries[defence, attack].value, attack) for attack in self.attacks]
        known = [(value, attack) for value, attack in values if value is not None]
        return min(known, key=lambda case: case[0]) if len(known) == len(values) else None

    def clients_add(self) -> ClientsAdd | None:
        """What the clients add to the root data, in the worst case; None without `root_only` or another such rule."""
        control = self.worst_case(CONTROL) if CONTROL in self.defences else None
        rivals = [(case, d) for d in self.defences if d in self.trusted - {CONTROL} and (case := self.worst_case(d))]
        if control is None or not rivals:
            return None
        (worst, attack), defence = max(rivals, key=lambda rival: rival[0][0])
        return ClientsAdd(defence, attack, worst, control[0])

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
    no_times: str = ""  # why times of different runs cannot be compared

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
        """Median seconds of a round without evaluation, over all runs of this defence; None if runs overlapped."""
        known = [
            float(line["seconds"]) - float(line.get("evaluation_seconds", 0.0))
            for name, _, entry in self.entries
            if name == defence
            for run in entry.runs
            for line in run.timing
            if "seconds" in line
        ]
        return median(known) if known and not self.no_times else None


def load_arena(folder: str | Path) -> ArenaResults:
    """Read the results in a folder that `dragfl arena` wrote, finished or not."""
    folder = Path(folder)
    try:
        return collect_results(folder, json.loads((folder / MANIFEST).read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedRun(
            f"{folder}: {MANIFEST} is missing or damaged ({error!r}); give a folder that `dragfl arena` wrote"
        ) from None


def collect_results(folder: Path, plan: Mapping[str, Any]) -> ArenaResults:
    """The results of a plan, as arena.json has it, read from its run directories."""
    strengths = {_key(one): one for one in (plan.get("tuning") or {}).get("strengths", ())}
    groups = _group_by_seed(plan["cells"])
    cells = {key: _load_entry(folder, same, strengths.get(key)) for key, same in groups.items()}
    matrices = tuple(_make_matrix(plan, cells, p, a) for p in plan["partitions"] for a in plan["attackers"])
    return ArenaResults(str(plan["note"]), tuple(plan["seeds"]), matrices, _why_no_times(plan))


def _group_by_seed(cells: Sequence[Mapping[str, Any]]) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(_key(cell), []).append(cell)
    return groups


def _key(cell: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(cell[name]) for name in ("defence", "attack", "partition", "attackers"))


def _why_no_times(plan: Mapping[str, Any]) -> str:
    """Why the times of the runs cannot be compared; "" if no two runs were executed at the same time."""
    if plan.get("overlapped") is None:
        return "it is not recorded whether runs were executed at the same time"
    count, total = len(plan["overlapped"]), sum("reason" not in cell for cell in plan["cells"])
    why = f"{count} of {total} runs were executed in parallel and shared the cores; use --jobs 1 and a new folder"
    return why if count else ""


def _load_entry(folder: Path, cells: Sequence[Mapping[str, Any]], strength: Mapping[str, Any] | None) -> Entry:
    paths = [folder / str(cell["run"]) for cell in cells if cell.get("run")]
    runs = tuple(run for path in paths if (path / SPEC).is_file() and (run := load_run(path)).finished)
    reason = next((str(cell["reason"]) for cell in cells if "reason" in cell), "")
    failed = {int(cell["seed"]): str(cell["failed"]) for cell in cells if "failed" in cell}
    planned = sum("reason" not in cell for cell in cells)
    return Entry(runs, planned - len(runs) - len(failed), reason, failed, strength)


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

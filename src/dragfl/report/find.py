"""Find run directories, and set those aside that cannot be read."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragfl.errors import DamagedRun, SpecError
from dragfl.report.labels import flatten
from dragfl.runs.directory import CLIENTS, INFO, METRICS, RESULT, SPEC, TIMING, Run

RunLike = Run | Path | str
CLASS_METRIC = "class_accuracy"  # a list, by class
BYTES = ("bytes_up", "bytes_down")
TABLES = {
    "algorithm", "algorithm.aggregate", "algorithm.correction", "algorithm.server", "attack", "clients", "data",
    "data.partition", "evaluation", "model",
}  # fmt: skip
EVALUATED = re.compile(r".*(accuracy|loss|variance|decile)")  # null or absent in rounds without an evaluation


@dataclass(frozen=True)
class Damaged:
    """A run directory that cannot be read."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return self.reason if str(self.path) in self.reason else f"{self.path}: {self.reason}"


def find_runs(runs: RunLike | Sequence[RunLike]) -> list[Run]:
    """Every readable run once, from run directories, `Run`s, and folders that contain run directories at any depth.

    A warning names the runs that cannot be read; it is an error if there is no other.
    """
    found, damaged = load_runs(runs)
    for run in damaged:
        warnings.warn(f"left out, damaged: {run}", stacklevel=2)
    return found


def load_runs(runs: RunLike | Sequence[RunLike], *, clients: bool = True) -> tuple[list[Run], list[Damaged]]:
    """(readable runs, damaged runs); `DamagedRun` if all are damaged. `clients=False` does not read clients.jsonl."""
    found: list[Run] = []
    damaged: list[Damaged] = []
    for run in _search(runs):
        try:
            check_run(run, clients=clients)
            found.append(run)
        except DamagedRun as error:
            damaged.append(Damaged(run.path, str(error)))
    if not found:
        raise DamagedRun(f"report: no readable run; {'; '.join(map(str, damaged))}")
    return found, damaged


def _search(runs: RunLike | Sequence[RunLike]) -> list[Run]:
    items = [runs] if isinstance(runs, (Run, Path, str)) else list(runs)
    found: dict[Path, Run] = {}
    for item in items:
        if not isinstance(item, Run) and not Path(item).exists():
            raise SpecError(f"report: {item}: no such folder; give run directories, or folders that contain some")
        for run in [item] if isinstance(item, Run) else _search_below(Path(item)):
            found.setdefault(run.path.resolve(), run)
    if not found:
        searched = ", ".join(str(item) for item in items) or "an empty list"
        raise SpecError(
            f"report: no run found in {searched}; searched for folders with a {SPEC}, at any depth: "
            "give a folder that `dragfl run` wrote, or one that contains such folders"
        )
    return list(found.values())


def _search_below(path: Path) -> list[Run]:
    if (path / SPEC).is_file():
        return [Run(path)]
    return [Run(spec.parent) for spec in sorted(path.rglob(SPEC))] if path.is_dir() else []


def check_run(run: Run, *, clients: bool = True) -> None:
    """Read every file that a report uses; `DamagedRun` if one is missing, incomplete or of another form."""
    for key in TABLES & flatten(run.spec).keys():
        raise _damaged(run, SPEC, f"{key} is no table")
    for file, table, keys in ((SPEC, run.spec, ("rounds", "target_accuracy")), (RESULT, run.result or {}, BYTES)):
        for key in keys:
            if not _is_number(table.get(key, 0), finite=True):
                raise _damaged(run, file, f"{key} = {table[key]!r} is no number")
    if not isinstance(run.spec.get("seed", 0), int):
        raise _damaged(run, SPEC, f"seed = {run.spec['seed']!r} is no whole number")
    prints = run.info.get("fingerprints") or {}
    if not isinstance(prints, Mapping) or not isinstance(prints.get("code", {}), Mapping):
        raise _damaged(run, INFO, "fingerprints is no table")
    logs = {METRICS: run.metrics, TIMING: run.timing} | ({CLIENTS: run.clients} if clients else {})
    for file, lines in logs.items():
        for i, line in enumerate(lines, 1):
            if problem := _problem(file, line):
                raise _damaged(run, file, f"line {i} {problem}")


def _problem(file: str, line: Any) -> str:
    """What is wrong with a line of a log; "" if nothing."""
    if not isinstance(line, Mapping) or not isinstance(line.get("round"), int):
        return "has no round"
    if file == CLIENTS:
        lists = [value for key, value in line.items() if key != "round"]
        if "client" not in line or not all(isinstance(v, list) and len(v) == len(line["client"]) for v in lists):
            return "is no set of equally long lists"
        return ""
    for key, value in line.items():
        if key == CLASS_METRIC:
            if not (isinstance(value, list) and all(v is None or _is_number(v, finite=True) for v in value)):
                return f"has {key} = {value!r}, no list of numbers"
        elif EVALUATED.fullmatch(key):
            if value is not None and not _is_number(value, finite=not key.endswith("loss")):
                return f"has {key} = {value!r}, no number"
        elif key in (*BYTES, "seconds", "evaluation_seconds") and not _is_number(value, finite=True):
            return f"has {key} = {value!r}, no number"
    return ""


def _is_number(value: Any, *, finite: bool) -> bool:
    """Whether a logged value is a number; one that is not finite is logged by its name."""
    if isinstance(value, (int, float)):
        return math.isfinite(value) or not finite
    return not finite and value in ("nan", "inf", "-inf")


def _damaged(run: Run, file: str, problem: str) -> DamagedRun:
    return DamagedRun(f"{run.path / file}: {problem}; the run is damaged: restore the file or run again")

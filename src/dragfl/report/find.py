"""Find run directories, and set those aside that cannot be read."""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragfl.errors import DamagedRun, SpecError
from dragfl.report.labels import flatten
from dragfl.runs.directory import CLIENTS, FINAL, INFO, METRICS, RESULT, SPEC, TIMING, TUNING, TUNING_TABLE, Run

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


@dataclass(frozen=True)
class Found:
    """The readable runs, those that cannot be read, and how many of a tuned sweep are left out as no results."""

    runs: list[Run]
    damaged: list[Damaged]
    tuning: int = 0
    not_selected: int = 0  # final runs with values that an earlier call had selected

    def notes(self) -> list[str]:
        """What is left out, a line each."""
        lines = [f"damaged, left out: {run}" for run in self.damaged]
        hint = "they are no results; to see them, give their folder"
        lines += [f"{self.tuning} tuning runs left out: {hint} '{TUNING}'"] if self.tuning else []
        hint = f"{TUNING_TABLE} selects other values now; to see them, give their folders"
        return lines + ([f"{self.not_selected} final runs left out: {hint}"] if self.not_selected else [])

    def warn(self) -> list[Run]:
        """The runs; a warning for each of the notes."""
        for note in self.notes():
            warnings.warn(note, stacklevel=3)
        return self.runs


def find_runs(runs: RunLike | Sequence[RunLike]) -> list[Run]:
    """Every readable run once, from run directories, `Run`s, and folders that contain run directories at any depth.

    Tuning runs are left out, unless their own folder is given. A warning names the runs that cannot be read; it is an
    error if there is no other.
    """
    return load_runs(runs).warn()


def load_runs(runs: RunLike | Sequence[RunLike], *, clients: bool = True) -> Found:
    """Search and read; `DamagedRun` if all runs are damaged. `clients=False` does not read clients.jsonl."""
    found: dict[Path, Run] = {}
    damaged: dict[Path, Damaged] = {}
    tuning: set[Path] = set()
    not_selected: set[Path] = set()
    items = [runs] if isinstance(runs, (Run, Path, str)) else list(runs)
    for item in items:
        for run in [item] if isinstance(item, Run) else _search(Path(item), damaged, tuning, not_selected):
            path = run.path.resolve()
            if path in found or path in damaged:
                continue
            try:
                check_run(run, clients=clients)
                if run.finished and run.result is None:  # it has finished since its first file was read
                    check_run(run := Run(run.path), clients=clients)
                found[path] = run
            except DamagedRun as error:
                damaged[path] = Damaged(run.path, str(error))
    if damaged and not found:
        raise DamagedRun(f"report: no readable run; {'; '.join(map(str, damaged.values()))}")
    if not found:
        searched = ", ".join(str(item) for item in items) or "an empty list"
        only = f"only tuning runs, in its folder '{TUNING}'" if tuning else f"searched for folders with a {SPEC}"
        raise SpecError(
            f"report: no run found in {searched}; {only}, at any depth: "
            "give a folder that `dragfl run` wrote, or one that contains such folders"
        )
    left_out = (len(paths - found.keys() - damaged.keys()) for paths in (tuning, not_selected))
    return Found(list(found.values()), list(damaged.values()), *left_out)


def _search(path: Path, damaged: dict[Path, Damaged], tuning: set[Path], not_selected: set[Path]) -> list[Run]:
    """The runs in a folder. Folders that cannot be opened and runs that are no results are added to the others."""

    def cannot_open(error: OSError) -> None:
        folder = Path(error.filename)
        damaged[folder.resolve()] = Damaged(folder, f"cannot be opened ({error.strerror})")

    if not os.path.exists(path):  # noqa: PTH110 - Path.exists raises where a folder above cannot be opened
        raise SpecError(f"report: {path}: no such folder; give run directories, or folders that contain some")
    if path.is_file():
        return []
    found = []
    for folder, folders, files in os.walk(path, onerror=cannot_open):
        if SPEC in files:
            found.append(Path(folder))
        folders[:] = [] if found == [path] else sorted(folders)  # what a run directory itself contains is its own
    below = {f for f in found if any(_holds_tuning_runs(p) for p in f.parents if path in p.parents)}
    earlier = {f for f in found if f != path and _is_not_selected(f)}
    tuning |= {f.resolve() for f in below}
    not_selected |= {f.resolve() for f in earlier}
    return [Run(f) for f in found if f not in below | earlier]


def _holds_tuning_runs(path: Path) -> bool:
    """Whether it is the folder of tuning runs of a sweep or an arena."""
    return path.name == TUNING and any((path.parent / file).is_file() for file in (TUNING_TABLE, "arena.json"))


def _is_not_selected(run: Path) -> bool:
    """Whether it is a final run of a tuned sweep with a candidate that is not the selected one."""
    if run.parent.name != FINAL:
        return False
    try:
        tuned = json.loads((run.parent.parent / TUNING_TABLE).read_text())["tuned"]
        others = [c["name"] for part in tuned for c in part["candidates"] if c["values"] != part["selected"]]
    except (OSError, ValueError, KeyError, TypeError):  # no tuned sweep, or one of version 0.1
        return False
    return run.name.rpartition("-seed")[0] in others


def check_run(run: Run, *, clients: bool = True) -> None:
    """Read every file that a report uses; `DamagedRun` if one is missing, incomplete or of another form."""
    run.check_spec()
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
    _ = run.nodes if clients else None
    rounds = (run.result or {}).get("rounds", len(run.metrics))
    if rounds != len(run.metrics):
        raise _damaged(run, METRICS, f"has {len(run.metrics)} rounds, {RESULT} has {rounds}")


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

"""Run a grid of experiments: every combination of the values given for some keys, each in its own run directory.

    dragfl.sweep("drift.toml", {"algorithm.name": ["fedavg", "drag"], "seed": [0, 1, 2]}, out="sweeps/drift")

The same call continues an interrupted sweep: finished runs are kept, unfinished ones are resumed. The folder of a run
is named by its own values alone, so a later call may add values to a key.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import tomli_w

from dragfl.config.overrides import parse_override, replace_values
from dragfl.config.spec import Experiment, read, resolve
from dragfl.errors import Interrupted, SpecError
from dragfl.runs.directory import Run, find_run, load_run
from dragfl.types import OnRecord

Grid = Mapping[str, Sequence[Any]]
LONGEST_NAME = 120  # of a folder; file systems allow 255 bytes


@dataclass(frozen=True)
class PlannedRun:
    """A checked experiment and the run directory it belongs to."""

    name: str
    folder: Path
    experiment: Experiment


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called while many runs are in progress."""

    on_begin: Callable[[PlannedRun, int], None] = lambda planned, rounds_done: None
    on_record: OnRecord = lambda record: None
    on_end: Callable[[Run, bool], None] = lambda run, already_done: None
    should_stop: Callable[[], bool] = lambda: False


NO_CALLBACKS = Callbacks()


def sweep(
    source: str | Path | Mapping[str, Any],
    grid: Grid,
    out: str | Path,
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    jobs: int = 1,
) -> list[Run]:
    """Run the grid, or the rest of it, with `jobs` runs in parallel. A diverged run is a result like any other."""
    return run_planned(plan_sweep(source, grid, out), callbacks, jobs=jobs)


def plan_sweep(source: str | Path | Mapping[str, Any], grid: Grid, out: str | Path) -> list[PlannedRun]:
    """Every run of the grid, checked before the first one starts."""
    tables, folder = read(source), Path(out)
    for key, values in grid.items():
        if not values:
            raise SpecError(f"sweep: no values for '{key}'; give at least one")
    planned: dict[str, PlannedRun] = {}
    for combination in itertools.product(*grid.values()):
        chosen = dict(zip(grid, combination, strict=True))
        name = run_name(chosen) or str(tables.get("name", "run"))
        if name in planned:
            raise SpecError(f"sweep: two runs have the name '{name}'; give each value once")
        paths = [(key.split("."), value) for key, value in chosen.items()]
        try:
            experiment = resolve(replace_values({**tables, "name": name}, paths))
        except SpecError as error:
            raise SpecError(f"sweep, run '{name}': {error}") from None
        planned[name] = PlannedRun(name, folder / name, experiment)
    return list(planned.values())


def run_planned(planned: Sequence[PlannedRun], callbacks: Callbacks = NO_CALLBACKS, *, jobs: int = 1) -> list[Run]:
    """Run or resume each, one after another or in `jobs` processes."""
    from dragfl.runs.loop import check_same_experiment

    existing = {p.name: run for p in planned if (run := find_run(p.folder)) is not None}
    for p in planned:
        if p.name in existing:
            check_same_experiment(p.experiment, existing[p.name])
    unfinished = []
    for p in planned:
        if p.name in existing and existing[p.name].finished:
            callbacks.on_begin(p, len(existing[p.name].metrics))
            callbacks.on_end(existing[p.name], True)
        else:
            unfinished.append(p)
    try:
        if jobs > 1 and unfinished:
            _run_in_processes(unfinished, callbacks, jobs)
        else:
            _run_in_turn(unfinished, callbacks)
    except Interrupted as error:
        finished = sum(run.finished for p in planned if (run := find_run(p.folder)) is not None)
        raise Interrupted(
            f"sweep stopped with {finished} of {len(planned)} runs finished; continue with the same command"
        ) from error
    return [load_run(p.folder) for p in planned]


def _run_in_turn(planned: Sequence[PlannedRun], callbacks: Callbacks) -> None:
    from dragfl.runs.loop import run_or_resume

    for p in planned:
        if p is not planned[0] and callbacks.should_stop():
            raise Interrupted("stopped between two runs")
        callbacks.on_begin(p, _rounds_done(p))
        run = run_or_resume(p.experiment, p.folder, on_record=callbacks.on_record, should_stop=callbacks.should_stop)
        callbacks.on_end(run, False)


def _run_in_processes(planned: Sequence[PlannedRun], callbacks: Callbacks, jobs: int) -> None:
    """Each process has one run at a time, and one thread."""
    from dragfl.config.portable import why_not_portable
    from dragfl.runs.jobs import run_in_processes

    for p in planned:
        if reason := why_not_portable(p.experiment, "set engine.workers = 1"):
            raise SpecError(f"sweep, run '{p.name}': runs in parallel are loaded by name: {reason}, and jobs = 1")
    run_in_processes(
        [(p.folder, _single_process(p.experiment)) for p in planned],
        jobs,
        lambda job: callbacks.on_begin(planned[job], _rounds_done(planned[job])),
        lambda job, record: callbacks.on_record(record),
        lambda job: callbacks.on_end(load_run(planned[job].folder), False),
        callbacks.should_stop,
    )


def _rounds_done(planned: PlannedRun) -> int:
    run = find_run(planned.folder)
    return len(run.metrics) if run is not None else 0


def _single_process(experiment: Experiment) -> dict[str, Any]:
    """The tables of a run that has one process."""
    engine = dataclasses.replace(experiment.engine, workers=1, executor="local")
    return dataclasses.replace(experiment, engine=engine).tables()


def parse_grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """A grid from words `key=a,b,c`."""
    grid: dict[str, list[Any]] = {}
    for word in words:
        key, equals, values = word.partition("=")
        key = key.strip()
        if not equals or not values:
            raise SpecError(f"sweep: {word!r}; write key=value,value,... for example seed=0,1,2")
        if key in grid:
            raise SpecError(f"sweep: '{key}' is given twice; put all its values in one word")
        grid[key] = parse_values(key, values)
    return grid


def parse_values(key: str, text: str) -> list[Any]:
    """The values of `a,b,c`, each a TOML literal or a bare word."""
    return [parse_override(f"{key}={value}")[1] for value in split_commas(text)]


def split_commas(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    pieces, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "[{":
            depth += 1
        elif c in "]}":
            depth -= 1
        elif c == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    return [piece.strip() for piece in [*pieces, text[start:]]]


def run_name(values: Mapping[str, Any]) -> str:
    """A folder name made of the values of a run: `drag-seed0`, `c0.25-lr0.1`."""
    name = "-".join(_name_part(key, value) for key, value in values.items())
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 17]}-{blake2b(name.encode(), digest_size=8).hexdigest()}"


def _name_part(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        text = "_".join(_name_part(inner, entry) for inner, entry in value.items())
    elif isinstance(value, str):
        text = value
    elif isinstance(value, int | float | list | tuple):
        text = tomli_w.dumps({"v": value}).removeprefix("v = ").strip()
    else:
        text = str(getattr(value, "name", type(value).__name__))
    last = key.rsplit(".", 1)[-1]
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text if last in ("name", "kind") else f"{last}{text}").strip("_")

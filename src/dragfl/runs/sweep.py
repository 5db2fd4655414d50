"""A grid of experiments: every combination of the values given for some keys, each a run directory of its own.

    dragfl.sweep("drift.toml", {"algorithm.name": ["fedavg", "drag"], "seed": [0, 1, 2]}, out="sweeps/drift")

The same call goes on where an interrupted one stopped: what is finished is kept, what is begun is resumed. A run's
folder is named by its values alone, so a later call may add values to a key.
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
from dragfl.runs.directory import SPEC, Run, load_run
from dragfl.types import OnRecord, RoundRecord

Grid = Mapping[str, Sequence[Any]]
LONGEST_NAME = 120  # of a folder; file systems allow 255 bytes


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    name: str
    folder: Path
    experiment: Experiment


OnBegin = Callable[[Planned, int], None]  # the run that comes, and how many of its rounds are done
OnEnd = Callable[[Run, bool], None]  # the run as it ended, and whether that was in an earlier call


def sweep(
    source: str | Path | Mapping[str, Any],
    grid: Grid,
    out: str | Path,
    *,
    on_begin: OnBegin = lambda planned, done: None,
    on_record: OnRecord | None = None,
    on_end: OnEnd = lambda run, already: None,
    should_stop: Callable[[], bool] = lambda: False,
    jobs: int = 1,
) -> list[Run]:
    """Run the grid, or what is left of it, `jobs` runs side by side; a run that diverges is a result like any other."""
    planned = plan(source, grid, out)
    return play(planned, on_begin=on_begin, on_record=on_record, on_end=on_end, should_stop=should_stop, jobs=jobs)


def plan(source: str | Path | Mapping[str, Any], grid: Grid, out: str | Path) -> list[Planned]:
    """Every run of the grid, checked before the first one starts."""
    tables, folder = read(source), Path(out)
    for key, values in grid.items():
        if not values:
            raise SpecError(f"sweep: no values for '{key}'; give at least one")
    planned = []
    for combination in itertools.product(*grid.values()):
        chosen = dict(zip(grid, combination, strict=True))
        name = run_name(chosen) or str(tables.get("name", "run"))
        paths = [(key.split("."), value) for key, value in chosen.items()]
        try:
            experiment = resolve(replace_values({**tables, "name": name}, paths))
        except SpecError as error:
            raise SpecError(f"sweep, run '{name}': {error}") from None
        planned.append(Planned(name, folder / name, experiment))
    names = [p.name for p in planned]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SpecError(f"sweep: two runs would be called '{twice}'; give each value once")
    return planned


def play(
    planned: list[Planned],
    *,
    on_begin: OnBegin,
    on_record: OnRecord | None,
    on_end: OnEnd,
    should_stop: Callable[[], bool],
    jobs: int = 1,
) -> list[Run]:
    """Run or resume each, in turn or side by side; `Interrupted` says how far it came."""
    from dragfl.runs.loop import begin_or_resume

    _check_begun(planned)
    if jobs > 1:
        return _side_by_side(planned, jobs, on_begin, on_record, on_end, should_stop)
    runs = []
    for i, p in enumerate(planned):
        before = load_run(p.folder) if (p.folder / SPEC).exists() else None
        already = before is not None and before.finished
        on_begin(p, len(before.metrics) if before else 0)
        try:
            runs.append(begin_or_resume(p.experiment, p.folder, on_record=on_record, should_stop=should_stop))
        except Interrupted:
            raise _interrupted(i, planned) from None
        on_end(runs[-1], already)
        if i + 1 < len(planned) and should_stop():
            raise _interrupted(i + 1, planned)
    return runs


def _side_by_side(
    planned: list[Planned],
    jobs: int,
    on_begin: OnBegin,
    on_record: OnRecord | None,
    on_end: OnEnd,
    should_stop: Callable[[], bool],
) -> list[Run]:
    """What has not ended yet in `jobs` child processes, each with one run at a time and one thread."""
    from dragfl.engine.backends.select import unnamed
    from dragfl.runs.jobs import Crew

    left = []
    for p in planned:
        if (p.folder / SPEC).exists() and load_run(p.folder).finished:
            on_begin(p, p.experiment.rounds)
            on_end(load_run(p.folder), True)
        else:
            left.append(p)

    def begin(job: int) -> None:
        begun = (left[job].folder / SPEC).exists()
        on_begin(left[job], len(load_run(left[job].folder).metrics) if begun else 0)

    def record(job: int, seen: RoundRecord) -> None:
        if on_record is not None:
            on_record(seen)

    for p in left:
        if why := unnamed(p.experiment):
            raise SpecError(f"sweep, run '{p.name}': side by side runs are loaded by name: {why}, and jobs = 1")
    if left:
        crew = Crew(jobs, [(p.folder, _alone(p.experiment)) for p in left])
        try:
            crew.run(begin, record, lambda job: on_end(load_run(left[job].folder), False), should_stop)
        except Interrupted as error:
            ended = sum(load_run(p.folder).finished for p in planned if (p.folder / SPEC).exists())
            raise _interrupted(ended, planned) from error
    return [load_run(p.folder) for p in planned]


def _alone(experiment: Experiment) -> dict[str, Any]:
    """The tables of a run that shares the machine with others: one process for itself."""
    alone = dataclasses.replace(experiment.engine, workers=1, executor="local")
    return dataclasses.replace(experiment, engine=alone).tables()


def _interrupted(finished: int, planned: list[Planned]) -> Interrupted:
    return Interrupted(f"sweep stopped with {finished} of {len(planned)} runs finished; go on with the same command")


def _check_begun(planned: list[Planned]) -> None:
    """What an earlier call left must be of the same experiments: a finished run is never run again."""
    from dragfl.runs.loop import same_spec

    for p in planned:
        if (p.folder / SPEC).exists() and not same_spec(p.experiment, load_run(p.folder)):
            raise SpecError(
                f"{p.folder}: holds a run of another experiment (has the file changed since?); "
                "choose another --out, or delete it"
            )


def parse_grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """`key=a,b,c` words as a grid; commas inside brackets and quotes belong to a value."""
    grid: dict[str, list[Any]] = {}
    for word in words:
        key, equals, values = word.partition("=")
        key = key.strip()
        if not equals or not values:
            raise SpecError(f"sweep: {word!r}; write key=value,value,... for example seed=0,1,2")
        if key in grid:
            raise SpecError(f"sweep: '{key}' is given twice; put all its values in one word")
        grid[key] = [parse_override(f"{key}={value}")[1] for value in split_commas(values)]
    return grid


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


def run_name(chosen: Mapping[str, Any]) -> str:
    """A folder name that says what this run is: `drag-seed0`, `c0.25-lr0.1`."""
    name = "-".join(_word(key, value) for key, value in chosen.items())
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 17]}-{blake2b(name.encode(), digest_size=8).hexdigest()}"


def _word(key: str, value: Any) -> str:
    last = key.rsplit(".", 1)[-1]
    text = _text(value)
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text if last in ("name", "kind") else f"{last}{text}").strip("_")


def _text(value: Any) -> str:
    """A value in a few letters: a table by its words, an object by its name."""
    if isinstance(value, Mapping):
        return "_".join(_word(key, inner) for key, inner in value.items())
    if isinstance(value, str | int | float | list | tuple):
        return value if isinstance(value, str) else tomli_w.dumps({"v": value}).removeprefix("v = ").strip()
    return str(getattr(value, "name", type(value).__name__))

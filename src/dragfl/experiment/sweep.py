"""A grid of experiments: every combination of the values given for some keys, each a run directory of its own.

    dragfl.sweep("drift.toml", {"algorithm.name": ["fedavg", "drag"], "seed": [0, 1, 2]}, out="sweeps/drift")

The same call goes on where an interrupted one stopped: what is finished is kept, what is begun is resumed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from dragfl.errors import Diverged, SpecError
from dragfl.experiment.overrides import parse_override, replace_values
from dragfl.experiment.rundir import SPEC, Run, load_run
from dragfl.experiment.spec import Experiment, read, resolve
from dragfl.types import OnRecord

Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    name: str
    folder: Path
    experiment: Experiment


OnBegin = Callable[[Planned, int], None]  # the run that comes, and how many of its rounds are done


def sweep(
    source: str | Path | Mapping[str, Any],
    grid: Grid,
    out: str | Path,
    *,
    on_begin: OnBegin = lambda planned, done: None,
    on_record: OnRecord | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Run]:
    """Run the grid, or what is left of it; a run that diverges is a result like any other."""
    return play(plan(source, grid, out), on_begin=on_begin, on_record=on_record, should_stop=should_stop)


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
        experiment = resolve(replace_values({**tables, "name": name}, paths))
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
    should_stop: Callable[[], bool],
) -> list[Run]:
    """Run or resume each in turn. `Interrupted` passes through: the same call goes on later."""
    from dragfl.experiment.runner import resume, run

    runs = []
    for p in planned:
        begun = (p.folder / SPEC).exists()
        on_begin(p, len(load_run(p.folder).metrics) if begun else 0)
        with suppress(Diverged):  # told by its result.json
            if begun:
                resume(p.folder, p.experiment, on_record=on_record, should_stop=should_stop)
            else:
                run(p.experiment, p.folder, on_record=on_record, should_stop=should_stop)
        runs.append(load_run(p.folder))
    return runs


def parse_grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """`key=a,b,c` words as a grid; commas inside brackets and quotes belong to a value."""
    grid: dict[str, list[Any]] = {}
    for word in words:
        key, equals, values = word.partition("=")
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
    return "-".join(_word(key, value) for key, value in chosen.items())


def _word(key: str, value: Any) -> str:
    last = key.rsplit(".", 1)[-1]
    text = value if isinstance(value, str) else _toml(value)
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text if last == "name" else f"{last}{text}").strip("_")


def _toml(value: Any) -> str:
    """A value as it is written in TOML, on one line."""
    return tomli_w.dumps({"v": value}).replace("\n", " ").removeprefix("v = ").strip()

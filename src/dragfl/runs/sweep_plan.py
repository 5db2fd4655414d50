"""Plan a sweep: the experiment of every combination of values, checked before anything runs. Imports no torch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import tomli_w

from dragfl.config.locate import located
from dragfl.config.overrides import parse_override, replace_values
from dragfl.config.spec import Experiment, read, resolve
from dragfl.config.tables import Top
from dragfl.errors import SpecError

Grid = Mapping[str, Sequence[Any]]
LONGEST_NAME = 120  # of a folder; file systems allow 255 bytes


@dataclass(frozen=True)
class PlannedRun:
    """A checked experiment and the run directory it belongs to."""

    folder: Path
    experiment: Experiment

    @property
    def name(self) -> str:
        """The name of the folder, unique among the runs; the experiment has the name that the user gave."""
        return self.folder.name


def plan_sweep(source: str | Path | Mapping[str, Any], grid: Grid, out: str | Path) -> list[PlannedRun]:
    """Every run of the grid, checked before the first one starts."""
    tables = read(source)
    for key, values in grid.items():
        if not values:
            raise SpecError(f"sweep: no values for '{key}'; give at least one")
    planned: dict[str, PlannedRun] = {}
    for combination in itertools.product(*grid.values()):
        chosen = dict(zip(grid, combination, strict=True))
        name = run_name(chosen) or given_name(tables)
        if name in planned:
            raise SpecError(f"sweep: two runs have the name '{name}'; give each value once")
        paths = [(key.split("."), value) for key, value in chosen.items()]
        try:
            with located(source, [f"{key}={value}" for key, value in chosen.items()]):
                experiment = resolve(replace_values(tables, paths))
        except SpecError as error:
            raise SpecError(f"sweep, run '{name}': {error}") from None
        planned[name] = PlannedRun(Path(out) / name, experiment)
    return list(planned.values())


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


def given_name(tables: Mapping[str, Any]) -> str:
    return str(tables.get("name", Top.name))


def sweep_folder(source: Path, tables: Mapping[str, Any], grid: Grid, tune: Grid) -> Path:
    """sweeps/NAME-KEYS: the name of the experiment, or else of its file, and what varies.

    `drift-algorithm-seed`; a key with one value has it too: `drift-seed-rounds20`; tuned keys follow: `drift-tune-lr`.
    """
    name = source.stem if given_name(tables) == Top.name else given_name(tables)
    keys = [_name_part(key, values[0]) if len(values) == 1 else key_name(key) for key, values in grid.items()]
    tuned = ["tune", *map(key_name, tune)] if tune else []
    return Path("sweeps") / _shortened("-".join([name, *keys, *tuned]))


def key_name(key: str) -> str:
    """`algorithm.name` -> `algorithm`, `data.partition.kind` -> `partition`, `clients.lr` -> `lr`."""
    *parents, last = key.split(".")
    return parents[-1] if last in ("name", "kind") and parents else last


def run_name(values: Mapping[str, Any]) -> str:
    """A folder name made of the values of a run: `drag-seed0`, `c0.25-lr0.1`."""
    return _shortened("-".join(_name_part(key, value) for key, value in values.items()))


def _shortened(name: str) -> str:
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
        text = str(getattr(value, "name", getattr(value, "__name__", type(value).__name__)))
    last = key.rsplit(".", 1)[-1]
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text if last in ("name", "kind") else f"{last}{text}").strip("_")

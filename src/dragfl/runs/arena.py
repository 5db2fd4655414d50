"""Every defence against every attack: a matrix of runs, each a run directory of its own.

    dragfl.arena("attack.toml", ["fedavg", "br_drag", "nnm+trimmed_mean"], ["sign_flip", "alie"], out="arena/attack")

Each defence is also played without attackers, set up as it is under the largest share of them that it can be set up
for; all shares are compared with that run. A defence that cannot be set up against an attack (too many attackers for
its guarantee) is a cell without a run, with the reason. The same call goes on where an interrupted one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragfl import atomic as durable
from dragfl.config.overrides import NO_ATTACK
from dragfl.config.spec import read
from dragfl.errors import Interrupted, SpecError
from dragfl.runs.directory import Run
from dragfl.runs.matchups import (
    Cell,
    Matchups,
    Split,
    check_names,
    checked,
    crowd_words,
    crowds,
    is_given_root,
    with_defence,
)
from dragfl.runs.sweep import OnBegin, OnEnd, Planned, play
from dragfl.types import OnRecord

MANIFEST = "arena.json"
RUNS = "runs"
QUICK_ROUNDS = 60

# What is played where nothing is chosen: one of each family, and the attacks made to get past them.
DEFENCES = (
    "fedavg",
    "median",
    "krum",
    "multi_krum",
    "geometric_median",
    "centered_clipping",
    "dnc",
    "nnm+trimmed_mean",
    "fltrust",
    "br_drag",
)
ATTACKS = ("random_scaling", "sign_flip", "gaussian", "label_flip", "alie", "ipm", "min_max", "fang_trim")


@dataclass(frozen=True)
class Arena:
    """A planned matrix: everything is checked, nothing has run."""

    folder: Path
    name: str  # of the experiment
    defences: list[str]
    attacks: list[str]
    partitions: list[str]
    attackers: list[str]
    seeds: list[int]
    trusted: list[str]  # the defences that are given trusted data
    cells: list[Cell]
    note: str = ""  # what a reader of the report should know

    @property
    def planned(self) -> list[Planned]:
        return [cell.planned for cell in self.cells if cell.planned is not None]

    def manifest(self) -> dict[str, Any]:
        """What a report needs beside the runs: which cell each of them is."""
        cells = [
            {
                "defence": c.defence,
                "attack": c.attack,
                "partition": c.partition,
                "attackers": c.attackers,
                "seed": c.seed,
                **({"run": f"{RUNS}/{c.planned.name}"} if c.planned else {"reason": c.reason}),
            }
            for c in self.cells
        ]
        names = ("name", "note", "defences", "attacks", "partitions", "attackers", "seeds", "trusted")
        return {**{name: getattr(self, name) for name in names}, "cells": cells}


def arena(
    source: str | Path | Mapping[str, Any],
    defences: Sequence[str],
    attacks: Sequence[str],
    *,
    partitions: Sequence[Any] | None = None,
    fractions: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path,
    on_begin: OnBegin = lambda planned, done: None,
    on_record: OnRecord | None = None,
    on_end: OnEnd = lambda run, already: None,
    should_stop: Callable[[], bool] = lambda: False,
    jobs: int = 1,
) -> list[Run]:
    """Play every defence against every attack, or what is left of it; `dragfl.report.arena.write(out)` shows it."""
    laid_out = lay_out(source, defences, attacks, partitions=partitions, fractions=fractions, seeds=seeds, out=out)
    return fight(laid_out, on_begin=on_begin, on_record=on_record, on_end=on_end, should_stop=should_stop, jobs=jobs)


def fight(
    arena: Arena,
    *,
    on_begin: OnBegin,
    on_record: OnRecord | None,
    on_end: OnEnd,
    should_stop: Callable[[], bool],
    jobs: int = 1,
) -> list[Run]:
    """Run what is planned, after writing down which run is which cell."""
    try:
        arena.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{arena.folder}: cannot be made ({error.strerror}); choose another place") from None
    durable.write_json(arena.folder / MANIFEST, arena.manifest())
    try:
        return play(
            arena.planned, on_begin=on_begin, on_record=on_record, on_end=on_end, should_stop=should_stop, jobs=jobs
        )
    except Interrupted as error:
        raise Interrupted(str(error).replace("sweep", "arena", 1)) from None


def choose(
    tables: Mapping[str, Any], defences: Sequence[str] | None = None, attacks: Sequence[str] | None = None
) -> tuple[list[str], list[str]]:
    """What is given, else a choice of each; of the defences those that the experiment has trusted data for."""
    probe = {"root": {}, **tables}
    known = [d for d in DEFENCES if "root" in tables or not is_given_root(d, with_defence(probe, d))]
    return list(known if defences is None else defences), list(ATTACKS if attacks is None else attacks)


def lay_out(
    source: str | Path | Mapping[str, Any],
    defences: Sequence[str],
    attacks: Sequence[str],
    *,
    partitions: Sequence[Any] | None = None,
    fractions: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path,
    note: str = "",
) -> Arena:
    """Every cell of the matrix, checked; a mistake in any name or setting is an error here."""
    tables = read(source)
    defences, attacks = list(dict.fromkeys(defences)), [a for a in dict.fromkeys(attacks) if a != NO_ATTACK]
    seeds = list(dict.fromkeys(seeds))
    for what, given in (("defences", defences), ("attacks", attacks), ("seeds", seeds)):
        if not given:
            raise SpecError(f"arena: no {what}; give at least one")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise SpecError(f"arena: seed {seed!r}; give whole numbers of at least 0")
    check_names(defences, attacks)
    own = tables.get("data", {}).get("partition", "iid")
    splits = [Split.of(given) for given in ([own] if partitions is None else partitions)]
    for split in splits:
        plain = {**tables, "algorithm": {"name": "fedavg"}, "attack": {"name": NO_ATTACK}}
        checked(f"partition '{split.label}'", split.put(plain))
    of_defence = {defence: with_defence(tables, defence) for defence in defences}
    trusted = [defence for defence in defences if is_given_root(defence, of_defence[defence])]
    found = crowds(tables, fractions)
    people = {crowd_words(tables, attacks, crowd): crowd for crowd in found}
    if len(people) < len(found):
        raise SpecError(f"arena: fractions {fractions}: two give the same number of attackers; remove one")
    rows = Matchups(Path(out) / RUNS, of_defence, attacks, people)
    cells = [
        cell for seed in seeds for split in splits for defence in defences for cell in rows.row(defence, split, seed)
    ]
    labels, name = [split.label for split in splits], str(tables.get("name", "run"))
    return Arena(Path(out), name, defences, attacks, labels, list(people), seeds, trusted, cells, note)

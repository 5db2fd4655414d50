"""Plan an attack matrix: the experiment of every defence against every attack, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from dragfl.aggregates import AGGREGATES
from dragfl.algorithms import PRESETS
from dragfl.config.build_parts import make_algorithm, needs_root
from dragfl.config.overrides import ATTACKER_KEYS, NO_ATTACK, replace_values
from dragfl.config.spec import Experiment, read, resolve
from dragfl.errors import SpecError, nearest
from dragfl.runs.sweep_plan import PlannedRun, run_name
from dragfl.types import Algorithm

RUNS = "runs"  # the folder of the runs, inside the arena's folder
DEFAULT_FRACTION = 0.2  # of the clients attack, if neither the caller nor the experiment sets a number

# The default matrix: one defence of each family, and the attacks designed against them.
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
    "cone_drag",
)
CONTROL = "root_only"  # a row of its own wherever a defence uses root data: what do the clients add?
DEFAULT_ATTACKS = ("random_scaling", "sign_flip", "gaussian", "label_flip", "alie", "ipm", "min_max", "fang_trim")

Tables = dict[str, Any]
CellKey = tuple[str, str, str, str | None]


@dataclass(frozen=True)
class Cell:
    """One defence, attack and seed; `planned` is None if the defence cannot be configured for this attack."""

    defence: str
    attack: str  # "none" for the no-attack baseline
    partition: str
    attackers: str | None  # such as "6 of 20 clients attack"; None for the baseline
    seed: int
    planned: PlannedRun | None
    reason: str = ""  # why there is no run
    failed: str = ""  # why the run failed

    @property
    def key(self) -> CellKey:
        """What the cells of different seeds have in common."""
        return self.defence, self.attack, self.partition, self.attackers


@dataclass(frozen=True)
class Arena:
    """A planned attack matrix: every cell is checked, nothing has run."""

    folder: Path
    name: str  # of the experiment
    note: str  # for the reader of the report
    defences: list[str]
    attacks: list[str]
    partitions: list[str]
    attackers: list[str]
    seeds: list[int]
    trusted: list[str]  # the defences that use trusted root data
    cells: list[Cell]

    @property
    def planned(self) -> list[PlannedRun]:
        return [cell.planned for cell in self.cells if cell.planned is not None]

    def manifest(self) -> Tables:
        """The plan in arena.json: the sides of the matrix, and the run of each cell or why there is none."""
        cells = [
            {
                **{name: getattr(c, name) for name in ("defence", "attack", "partition", "attackers", "seed")},
                **({"reason": c.reason} if c.reason else {"run": f"{RUNS}/{c.planned.name}" if c.planned else None}),
                **({"failed": c.failed} if c.failed else {}),
            }
            for c in self.cells
        ]
        sides = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("folder", "cells")}
        return {**sides, "cells": cells}


def default_defences(tables: Tables) -> list[str]:
    """The default defences; those that need trusted root data only if the experiment has some."""
    return [d for d in DEFENCES if "root" in tables or not uses_root(tables, d)]


def plan_arena(
    source: str | Path | Mapping[str, Any],
    defences: Sequence[Any],
    attacks: Sequence[Any],
    *,
    partitions: Sequence[Any] | None = None,
    fractions: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path,
    note: str = "",
    root_only: bool = True,
) -> Arena:
    """Every cell of the matrix. A mistake in any name or setting is a `SpecError` here.

    Where a defence uses root data, `root_only` is one more row, unless it is switched off.
    """
    tables = read(source)
    rules, against = _named("defences", defences), _named("attacks", attacks)
    against.pop(NO_ATTACK, None)
    defences, attacks = list(rules), list(against)
    seeds = list(dict.fromkeys(seeds))
    if partitions is None:
        partitions = [tables.get("data", {}).get("partition", "iid")]
    for side, values in {"defences": defences, "attacks": attacks, "seeds": seeds, "fractions": fractions}.items():
        if values is not None and not values:
            raise SpecError(f"arena: no {side}; give at least one")
    plain = {**tables, "algorithm": {"name": "fedavg"}, "attack": {"name": NO_ATTACK}}
    for partition in partitions:
        _resolve(f"partition '{_partition_label(partition)}'", _with_partition(plain, partition))
    for seed in seeds:
        _resolve(f"seed {seed!r}", {**plain, "seed": seed})
    trusted = [name for name, defence in rules.items() if uses_root(tables, defence)]
    if trusted and "root" not in tables:
        raise SpecError(f"arena, defence '{trusted[0]}': needs trusted root data; add [root] with size = 100")
    if root_only and trusted and CONTROL not in rules:
        rules[CONTROL] = CONTROL
        defences, trusted = [*defences, CONTROL], [*trusted, CONTROL]
    attackers = _attacker_settings(tables, against, fractions)
    cells = [
        cell
        for seed in seeds
        for partition in partitions
        for name, defence in rules.items()
        for cell in _plan_row(
            name,
            _with_partition({**with_defence(tables, defence), "seed": seed}, partition),
            against,
            attackers,
            Path(out) / RUNS,
        )
    ]
    labels = [_partition_label(partition) for partition in partitions]
    title = str(tables.get("name", "run"))
    return Arena(Path(out), title, note, defences, attacks, labels, list(attackers), seeds, trusted, cells)


def _plan_row(defence: str, base: Tables, attacks: Tables, attackers: Mapping[str, Tables], folder: Path) -> list[Cell]:
    """The cells of one defence: the no-attack baseline, then every attack with every number of attackers.

    The baseline is configured for the largest number of attackers that the defence can be configured for.
    """
    seed, partition = base["seed"], base["data"]["partition"]
    split = {f"data.partition.{key}": value for key, value in _partition_values(partition).items()}
    cells: list[Cell] = []
    configured: Experiment | None = None
    attacked = [(attack, label, settings) for label, settings in attackers.items() for attack in attacks]
    for attack, label, settings in [*attacked, (NO_ATTACK, None, {})]:
        planned, reason = None, ""
        try:
            experiment = resolve(with_attack(base, settings, attacks.get(attack, NO_ATTACK)))
            if attack == NO_ATTACK:
                experiment = replace(experiment, algorithm=(configured or experiment).algorithm)
                f = getattr(experiment.algorithm.aggregate, "f", None)
                settings = {"f": f} if f else {}
            name = run_name({"algorithm.name": defence, "attack.name": attack, **settings, **split, "seed": seed})
            planned = PlannedRun(folder / name, experiment)
            configured = experiment
        except SpecError as error:
            reason = str(error)
        cells.append(Cell(defence, attack, _partition_label(partition), label, seed, planned, reason))
    return [cells[-1], *cells[:-1]]


def _resolve(where: str, tables: Tables) -> Experiment:
    """The experiment; an error names its place in the arena."""
    try:
        return resolve(tables)
    except SpecError as error:
        raise SpecError(f"arena, {where}: {error}") from None


def with_defence(tables: Tables, defence: Any) -> Tables:
    """The tables with this defence: a preset, an aggregate alone, a chain such as `nnm+trimmed_mean`, or an object."""
    if not isinstance(defence, str):
        return {**tables, "algorithm": {"name": defence}}
    if defence in AGGREGATES and defence not in PRESETS:
        return {**tables, "algorithm": {"aggregate": defence}}
    return replace_values(tables, [(["algorithm", "name"], defence)])


def with_attack(tables: Tables, attackers: Tables, attack: Any) -> Tables:
    """The tables with this attack, its `[attacks.NAME]` settings and this number of attackers."""
    return replace_values({**tables, "attack": attackers}, [(["attack", "name"], attack)])


def uses_root(tables: Tables, defence: Any) -> bool:
    """Whether the defence uses trusted root data."""
    rules = {**PRESETS, **AGGREGATES}
    if isinstance(defence, str) and defence not in rules and ":" not in defence and "+" not in defence:
        raise SpecError(f"arena, defence '{defence}': unknown rule{nearest(defence, rules)}")
    try:
        return needs_root(make_algorithm(with_defence(tables, defence)))
    except SpecError as error:
        raise SpecError(f"arena, defence '{_name(defence)}': {error}") from None


def _named(side: str, values: Sequence[Any]) -> Tables:
    """Name -> the name itself, or the object given from Python."""
    named: Tables = {}
    for value in values:
        if named.setdefault(_name(value), value) is not value and not isinstance(value, str):
            raise SpecError(f"arena: two of the {side} are called '{_name(value)}'; give them different names")
    return named


def _name(given: Any) -> str:
    """A name as it is; of an object its own name, or that of its class."""
    if isinstance(given, str):
        return given
    return given.name if isinstance(given, Algorithm) else str(getattr(given, "__name__", type(given).__name__))


def _with_partition(tables: Tables, partition: Any) -> Tables:
    return {**tables, "data": {**tables.get("data", {}), "partition": partition}}


def _partition_values(partition: Any) -> Tables:
    """The keys of a partition given by name, as a table or (from Python) as an object."""
    if isinstance(partition, Mapping):
        return dict(partition)
    return {"kind": partition if isinstance(partition, str) else type(partition).__name__}


def _partition_label(partition: Any) -> str:
    return " ".join(v if k == "kind" else f"{k}={v}" for k, v in _partition_values(partition).items())


def _attacker_settings(tables: Tables, attacks: Tables, fractions: Sequence[float] | None) -> dict[str, Tables]:
    """`6 of 20 clients attack` -> the keys of `[attack]` that set this number, for each fraction."""
    given = {k: v for k, v in tables.get("attack", {}).items() if k in ATTACKER_KEYS}
    if fractions is None and given.keys() & {"attackers", "fraction"}:
        return {_attackers_label(tables, attacks, given): given}
    given.pop("attackers", None)
    labelled: dict[str, Tables] = {}
    for fraction in [DEFAULT_FRACTION] if fractions is None else dict.fromkeys(fractions):
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0.0 < fraction < 1.0:
            raise SpecError(f"arena: fraction {fraction!r}; give a fraction of the clients in (0, 1), such as 0.3")
        settings = {**given, "fraction": float(fraction)}
        label = _attackers_label(tables, attacks, settings)
        if label in labelled:
            raise SpecError(f"arena: fractions {fractions}: two give the same number of attackers; remove one")
        labelled[label] = settings
    return dict(sorted(labelled.items(), key=lambda item: item[1]["fraction"]))


def _attackers_label(tables: Tables, attacks: Tables, settings: Tables) -> str:
    """`6 of 20 clients attack`. Also checks every attack, against plain averaging."""
    plain = {**tables, "algorithm": {"name": "fedavg"}}
    named = attacks.items()
    experiments = [_resolve(f"attack '{name}'", with_attack(plain, settings, attack)) for name, attack in named]
    clients, attackers = experiments[0].clients, experiments[0].attackers
    total = f"{clients.per_round} sampled" if attackers.drawn_from_cohort else f"{clients.total}"
    return f"{attackers.drawn(clients)} of {total} clients attack"

"""One defence against one attack as an experiment: the tables it takes, and a row of the arena's matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragfl.aggregates import AGGREGATES
from dragfl.algorithms import PRESETS
from dragfl.attacks import ATTACKS
from dragfl.config.overrides import ATTACKER_KEYS, NO_ATTACK, replace_values
from dragfl.config.spec import Experiment, resolve
from dragfl.errors import SpecError, nearest
from dragfl.runs.sweep import Planned, run_name
from dragfl.types import FederationInfo

SHARE = 0.2  # of the clients attack, where neither the caller nor the experiment says how many
PLENTY = 1000  # clients; enough for any rule to be set up

Tables = dict[str, Any]
CALM = {"name": NO_ATTACK}


@dataclass(frozen=True)
class Cell:
    """A defence, an attack and a seed; without a run where the defence cannot be set up."""

    defence: str
    attack: str  # or "none"
    partition: str
    attackers: str | None  # how many attack, in words; None where nobody does, for all numbers of attackers
    seed: int
    planned: Planned | None
    reason: str = ""  # why there is no run


@dataclass(frozen=True)
class Split:
    """A partition: in words, as a table, and as the words of a run's name."""

    label: str
    table: Any
    words: Mapping[str, Any]

    @staticmethod
    def of(given: Any) -> Split:
        """`iid`, a table, or from Python an object."""
        if not isinstance(given, str | Mapping):
            name = type(given).__name__
            return Split(name, given, {"data.partition.kind": name})
        table = {"kind": given} if isinstance(given, str) else dict(given)
        words = [str(value) if key == "kind" else f"{key}={value}" for key, value in table.items()]
        return Split(" ".join(words), table, {f"data.partition.{key}": value for key, value in table.items()})

    def put(self, tables: Tables) -> Tables:
        return {**tables, "data": {**tables.get("data", {}), "partition": self.table}}


@dataclass(frozen=True)
class Matchups:
    """What the rows of a matrix have in common."""

    folder: Path
    tables: Mapping[str, Tables]  # of each defence
    attacks: Sequence[str]
    crowds: Mapping[str, Tables]  # how many attack, in words -> the keys of [attack] that say so

    def row(self, defence: str, split: Split, seed: int) -> list[Cell]:
        """The cells of one defence: nobody attacking first, then every attack with every number of attackers."""
        base = split.put({**self.tables[defence], "seed": seed})
        cells: list[Cell] = []
        prepared: Experiment | None = None  # the defence as it is set up for the most attackers it bears
        for label, crowd in sorted(self.crowds.items(), key=lambda item: _size(item[1])):
            for attack in self.attacks:
                name = run_name(
                    {"algorithm.name": defence, "attack.name": attack, **crowd, **split.words, "seed": seed}
                )
                experiment, reason = _resolved(with_attack({**base, "name": name}, crowd, attack))
                planned = Planned(name, self.folder / name, experiment) if experiment else None
                cells.append(Cell(defence, attack, split.label, label, seed, planned, reason))
                prepared = experiment or prepared
        return [self._calm(defence, split, seed, base, prepared), *cells]

    def _calm(self, defence: str, split: Split, seed: int, base: Tables, prepared: Experiment | None) -> Cell:
        """The defence as it is prepared for attackers, and nobody attacks."""
        calm, reason = _resolved({**base, "attack": CALM})
        if calm is None:
            return Cell(defence, NO_ATTACK, split.label, None, seed, None, reason)
        if prepared is not None:
            calm = replace(calm, algorithm=prepared.algorithm)
        f = getattr(calm.algorithm.aggregate, "f", None)
        assumed = {"f": f} if f else {}
        name = run_name({"algorithm.name": defence, "attack.name": NO_ATTACK, **assumed, **split.words, "seed": seed})
        return Cell(
            defence, NO_ATTACK, split.label, None, seed, Planned(name, self.folder / name, replace(calm, name=name))
        )


def _resolved(tables: Tables) -> tuple[Experiment | None, str]:
    """The experiment, or why there is none; defence, attack and partition are known to be fine by themselves."""
    try:
        return resolve(tables), ""
    except SpecError as error:
        return None, str(error)


def checked(where: str, tables: Tables) -> Experiment:
    """The experiment; an error says where in the arena it is."""
    try:
        return resolve(tables)
    except SpecError as error:
        raise SpecError(f"arena, {where}: {error}") from None


def check_names(defences: Sequence[str], attacks: Sequence[str]) -> None:
    """The names of rules and attacks; those in a chain are checked where the chain is built."""
    rules = {**PRESETS, **AGGREGATES}
    for defence in defences:
        if defence not in rules and ":" not in defence and "+" not in defence:
            raise SpecError(f"arena, defence '{defence}': unknown rule{nearest(defence, rules)}")
    for attack in attacks:
        if attack not in ATTACKS and ":" not in attack:
            raise SpecError(f"arena, attack '{attack}': unknown attack{nearest(attack, ATTACKS)}")


def with_defence(tables: Tables, defence: str) -> Tables:
    """The tables with this defence: a preset, an aggregate by itself, or a chain `nnm+trimmed_mean` of them."""
    if "+" in defence:
        return {**tables, "algorithm": {"aggregate": {"name": "chain", "chain": defence.split("+")}}}
    if defence in AGGREGATES and defence not in PRESETS:
        return {**tables, "algorithm": {"aggregate": defence}}
    return replace_values(tables, [(["algorithm", "name"], defence)])


def with_attack(tables: Tables, crowd: Tables, attack: str) -> Tables:
    """The tables with so many attackers, and the attack's `[attacks.NAME]` settings."""
    return replace_values({**tables, "attack": crowd}, [(["attack", "name"], attack)])


def is_given_root(defence: str, tables: Tables) -> bool:
    """Whether the defence works with trusted data. Plenty of clients: how many it needs is another matter."""
    clients = {**tables.get("clients", {}), "total": PLENTY, "per_round": PLENTY}
    rule = checked(f"defence '{defence}'", {**tables, "clients": clients, "attack": CALM}).algorithm.aggregate
    return "root" in rule.needs(rule.init(FederationInfo(1, PLENTY, PLENTY, (0, 1))))


def crowds(tables: Tables, fractions: Sequence[float] | None) -> list[Tables]:
    """The keys of `[attack]` that say how many attack, for each fraction or as the experiment has it."""
    own = {k: v for k, v in tables.get("attack", {}).items() if k in ATTACKER_KEYS}
    if fractions is None:
        return [own if own.keys() & {"attackers", "fraction"} else {**own, "fraction": SHARE}]
    if not fractions:
        raise SpecError("arena: no fractions; give at least one, or leave them out")
    for fraction in fractions:
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0.0 < fraction < 1.0:
            raise SpecError(f"arena: fraction {fraction!r}; give a share of the clients between 0 and 1, as 0.3")
    rest = {k: v for k, v in own.items() if k not in ("attackers", "fraction")}
    return [{**rest, "fraction": float(fraction)} for fraction in dict.fromkeys(fractions)]


def _size(crowd: Tables) -> float:
    """What crowds of one arena are ordered by: all give a number, or all a share."""
    return float(crowd.get("attackers") or crowd.get("fraction") or 0.0)


def crowd_words(tables: Tables, attacks: Sequence[str], crowd: Tables) -> str:
    """`6 of 20 clients attack`; every attack is checked by itself, against plain averaging."""
    plain = {**tables, "algorithm": {"name": "fedavg"}}
    experiments = [checked(f"attack '{attack}'", with_attack(plain, crowd, attack)) for attack in attacks]
    clients, who = experiments[0].clients, experiments[0].attackers
    everyone = f"{clients.per_round} sampled" if who.redraw and who.of_sampled else f"{clients.total}"
    return f"{who.drawn(clients)} of {everyone} clients attack"

"""The experiment: a TOML file with `key=value` overrides, checked and resolved. Needs no torch.

    experiment = dragfl.load("drag.toml", "algorithm.c=0.1")
    experiment = dragfl.load({"rounds": 50, "algorithm": {"name": "drag"}})

Wherever a spec has a name, Python code may put the object itself.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from dragfl.aggregates.robust import Chain
from dragfl.algorithms import PARTS, describe_chain
from dragfl.attacks import ATTACKS
from dragfl.config import tables as sections
from dragfl.config.build_parts import (
    Model,
    check_algorithms,
    check_attacks,
    make_algorithm,
    make_attack,
    make_dataset,
    make_model,
    make_root,
)
from dragfl.config.overrides import attack_table, override
from dragfl.config.registry import build, convert, describe, without_none
from dragfl.data.partitions import PARTITIONS, Partition
from dragfl.errors import SpecError, nearest
from dragfl.models import MODELS
from dragfl.types import Algorithm, Attack, FederationInfo


@dataclass(frozen=True)
class Experiment:
    """A checked experiment; made by `dragfl.load`."""

    name: str
    seed: int
    rounds: int
    target_accuracy: float | None
    stop_at_target: bool
    dataset: Any  # a name, or a Dataset
    partition: Partition
    root: sections.Root | None
    clients: sections.Clients
    algorithm: Algorithm
    attack: Attack[Any] | None
    attackers: sections.Attackers
    model: Model
    evaluation: sections.Evaluation
    checkpoint: sections.Checkpoint
    state: sections.State
    engine: sections.Engine

    def tables(self) -> dict[str, Any]:
        """The resolved spec as plain tables: loading them again gives the same experiment."""
        name = self.dataset if isinstance(self.dataset, str) else f"object:{self.dataset.name}"
        model = describe(self.model.make, MODELS) | dict(self.model.settings)
        tables = {
            "name": self.name,
            "seed": self.seed,
            "rounds": self.rounds,
            "target_accuracy": self.target_accuracy,
            "stop_at_target": self.stop_at_target,
            "data": {"dataset": name, "partition": describe(self.partition, PARTITIONS, key="kind")},
            "root": dataclasses.asdict(self.root) if self.root else None,
            "clients": dataclasses.asdict(self.clients),
            "algorithm": {
                "name": self.algorithm.name,
                **{part: _describe_part(getattr(self.algorithm, part), registry) for part, registry in PARTS.items()},
            },
            "attack": describe(self.attack, ATTACKS) | dataclasses.asdict(self.attackers) if self.attack else None,
            "model": model | {"double_softmax": self.model.double_softmax, "buffers": self.model.buffers},
            "evaluation": dataclasses.asdict(self.evaluation),
            "checkpoint": dataclasses.asdict(self.checkpoint),
            "state": dataclasses.asdict(self.state),
            "engine": dataclasses.asdict(self.engine),
        }
        return without_none(tables)

    def to_toml(self) -> str:
        return tomli_w.dumps(self.tables())


def _describe_part(part: Any, registry: Mapping[str, Any]) -> dict[str, Any]:
    return describe_chain(part) if isinstance(part, Chain) else describe(part, registry)


TABLES = (
    "data",
    "root",
    "clients",
    "algorithm",
    "algorithms",
    "attack",
    "attacks",
    "model",
    "evaluation",
    "checkpoint",
    "state",
    "engine",
)


@dataclass(frozen=True)
class Top:
    """The keys outside any table."""

    name: str = "run"
    seed: int = 0
    rounds: int = 100
    target_accuracy: float | None = None
    stop_at_target: bool = False

    def __post_init__(self) -> None:
        sections.at_least("rounds", self.rounds, 1)
        sections.at_least("seed", self.seed, 0)
        if self.target_accuracy is not None and not 0.0 < self.target_accuracy <= 1.0:
            raise SpecError(f"target_accuracy: {self.target_accuracy} is outside (0, 1]; give a share such as 0.8")
        if self.stop_at_target and self.target_accuracy is None:
            raise SpecError("stop_at_target: there is no target_accuracy to stop at; set it as well")
        if not self.name or self.name in (".", "..") or any(c in self.name for c in "/\\\0\n"):
            raise SpecError(f"name: {self.name!r} cannot name a run directory; use letters, digits, '-' and '_'")


def load(source: str | Path | Mapping[str, Any], *overrides: str) -> Experiment:
    """Read, override, check and resolve an experiment."""
    return resolve(override(read(source), overrides))


def as_experiment(given: Experiment | str | Path | Mapping[str, Any]) -> Experiment:
    """An experiment, or what `load` makes one of."""
    return given if isinstance(given, Experiment) else load(given)


def read(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a TOML file or of a mapping."""
    if isinstance(source, Mapping):
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in source.items()}
    try:
        return tomllib.loads(Path(source).read_text())
    except FileNotFoundError:
        raise SpecError(f"{source}: no such file; give a TOML experiment") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"{source}: cannot be read as TOML: {error}") from None


def resolve(tables: Mapping[str, Any]) -> Experiment:
    """Check plain tables and build the experiment they describe."""
    known = [*(f.name for f in dataclasses.fields(Top)), *TABLES]
    for key in tables:
        if key not in known:
            raise SpecError(f"{key}: unknown key '{key}'{nearest(key, known)}")
    if isinstance(tables.get("algorithm"), Algorithm):
        tables = {**tables, "algorithm": {"name": tables["algorithm"]}}
    for key in TABLES:
        if not isinstance(tables.get(key, {}), Mapping):
            raise SpecError(f"{key}: expected a table, got {tables[key]!r}; write [{key}] and its keys below it")
    check_algorithms(tables.get("algorithms", {}))
    check_attacks(tables.get("attacks", {}))
    top = convert("", {k: v for k, v in tables.items() if k not in TABLES}, Top)
    data_table = convert("data", tables.get("data", {}), sections.Data)
    clients = convert("clients", tables.get("clients", {}), sections.Clients)
    if clients.local_steps is None and clients.local_epochs is None:
        clients = dataclasses.replace(clients, local_steps=5)
    if clients.per_round is None:
        clients = dataclasses.replace(clients, per_round=clients.total)
    attack, attackers = make_attack(attack_table(tables) if "attack" in tables else None)
    experiment = Experiment(
        **dataclasses.asdict(top),
        dataset=make_dataset(data_table.dataset),
        partition=build("data.partition", data_table.partition, PARTITIONS, ("__call__",), key="kind"),
        root=make_root(tables.get("root")),
        clients=clients,
        algorithm=make_algorithm(tables),
        attack=attack,
        attackers=attackers,
        model=make_model(tables.get("model", {})),
        evaluation=convert("evaluation", tables.get("evaluation", {}), sections.Evaluation),
        checkpoint=convert("checkpoint", tables.get("checkpoint", {}), sections.Checkpoint),
        state=convert("state", tables.get("state", {}), sections.State),
        engine=convert("engine", tables.get("engine", {}), sections.Engine),
    )
    experiment = _with_assumed_f(experiment)
    _check_together(experiment)
    return experiment


def _with_assumed_f(e: Experiment) -> Experiment:
    """A robust rule that is not told how many attackers to assume assumes the number expected in a cohort."""
    rule: Any = e.algorithm.aggregate
    if not hasattr(rule, "shortage") or getattr(rule, "f", 0) is not None:
        return e
    expected = round(e.attackers.expected(e.clients)) if e.attack is not None else 0
    told = dataclasses.replace(rule, f=expected)
    return dataclasses.replace(e, algorithm=dataclasses.replace(e.algorithm, aggregate=told))


def _check_together(e: Experiment) -> None:
    """What no single table can check."""
    probe = FederationInfo(
        dim=1, clients=e.clients.total, per_round=e.clients.per_round or e.clients.total, segments=(0, 1)
    )
    rule, correct = e.algorithm.aggregate, e.algorithm.correction
    if e.root is None and "root" in rule.needs(rule.init(probe)) | correct.needs(correct.init(probe)):
        raise SpecError(
            f"algorithm '{e.algorithm.name}' needs trusted root data and there is no [root] table; "
            "add for example: [root] with size = 100"
        )
    shortage = getattr(rule, "shortage", None)
    if shortage is not None and (why := shortage(probe.per_round)):
        raise SpecError(why)
    limit = e.clients.per_round if e.attackers.of_sampled else e.clients.total
    if limit is not None and (e.attackers.attackers or 0) > limit:
        raise SpecError(f"attack.attackers: {e.attackers.attackers} is more than the {limit} clients there are")
    if isinstance(e.clients.lr, float | int) and not math.isfinite(e.clients.lr):
        raise SpecError(f"clients.lr: {e.clients.lr}; give a finite number")

"""The experiment: a TOML file with `key=value` overrides, checked and resolved. Needs no torch.

    experiment = dragfl.load("drag.toml", "algorithm.c=0.1")
    experiment = dragfl.load({"rounds": 50, "algorithm": {"name": "drag"}})

Wherever a spec has a name, Python code may put the object itself.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w

from dragfl import data
from dragfl.algorithms import PARTS, PRESETS, expand
from dragfl.attacks import ATTACKS
from dragfl.data.partitions import PARTITIONS, Partition
from dragfl.errors import SpecError, nearest
from dragfl.experiment import sections
from dragfl.experiment.names import build, convert, describe, import_object, look_up, without_none
from dragfl.experiment.overrides import ATTACKER_KEYS, NO_ATTACK, algorithm_table, attack_table, override
from dragfl.models import MODELS
from dragfl.types import Algorithm, Attack, Setting

METHODS = {
    "correction": ("fields", "init", "needs", "broadcast", "affine", "client_finish", "server_finish"),
    "aggregate": ("init", "needs", "begin", "fold", "finish"),
    "server": ("init", "update"),
}


@dataclass(frozen=True)
class Model:
    """`[model]`: what makes the module, and its settings."""

    make: Any  # (shape, classes, **settings) -> nn.Module, or an nn.Module
    settings: Mapping[str, Any] = field(default_factory=dict)
    double_softmax: bool = False
    buffers: Literal["refuse", "average"] = "refuse"


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
    attack: Attack | None
    attackers: sections.Attackers
    model: Model
    evaluation: sections.Evaluation
    checkpoint: sections.Checkpoint
    state: sections.State
    engine: sections.Engine

    def tables(self) -> dict[str, Any]:
        """The resolved spec as plain tables: loading them again gives the same experiment."""
        name = self.dataset if isinstance(self.dataset, str) else f"object:{self.dataset.name}"
        root = {**dataclasses.asdict(self.root), "from": self.root.source} if self.root else None
        if root:
            del root["source"]
        model = describe(self.model.make, MODELS) | dict(self.model.settings)
        tables = {
            "name": self.name,
            "seed": self.seed,
            "rounds": self.rounds,
            "target_accuracy": self.target_accuracy,
            "stop_at_target": self.stop_at_target,
            "data": {"dataset": name, "partition": describe(self.partition, PARTITIONS, key="kind")},
            "root": root,
            "clients": dataclasses.asdict(self.clients),
            "algorithm": {
                "name": self.algorithm.name,
                **{part: describe(getattr(self.algorithm, part), registry) for part, registry in PARTS.items()},
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
    _check_algorithms(tables.get("algorithms", {}))
    _check_attacks(tables.get("attacks", {}))
    top = convert("", {k: v for k, v in tables.items() if k not in TABLES}, Top)
    data_table = convert("data", tables.get("data", {}), sections.Data)
    clients = convert("clients", tables.get("clients", {}), sections.Clients)
    if clients.local_steps is None and clients.local_epochs is None:
        clients = dataclasses.replace(clients, local_steps=5)
    if clients.per_round is None:
        clients = dataclasses.replace(clients, per_round=clients.total)
    attack, attackers = _attack(attack_table(tables) if "attack" in tables else None)
    experiment = Experiment(
        **dataclasses.asdict(top),
        dataset=_dataset(data_table.dataset),
        partition=build("data.partition", data_table.partition, PARTITIONS, ("__call__",), key="kind"),
        root=_root(tables.get("root")),
        clients=clients,
        algorithm=_algorithm(tables),
        attack=attack,
        attackers=attackers,
        model=_model(tables.get("model", {})),
        evaluation=convert("evaluation", tables.get("evaluation", {}), sections.Evaluation),
        checkpoint=convert("checkpoint", tables.get("checkpoint", {}), sections.Checkpoint),
        state=convert("state", tables.get("state", {}), sections.State),
        engine=convert("engine", tables.get("engine", {}), sections.Engine),
    )
    experiment = _with_assumed_f(experiment)
    _check_together(experiment)
    return experiment


def _dataset(given: Any) -> Any:
    if isinstance(given, str):
        kind, colon, _ = given.partition(":")
        if not colon and given not in data.SOURCES:
            raise SpecError(f"data.dataset: unknown dataset '{given}'{nearest(given, data.SOURCES)}")
        if kind == "object":
            raise SpecError(f"data.dataset: {given} stands for a Dataset that was given from Python; give it again")
        if colon and kind not in data.FILES:
            import_object("data.dataset", given)
    elif not hasattr(given, "inputs"):
        raise SpecError(f"data.dataset: {type(given).__name__} is neither a name nor a dragfl Dataset")
    return given


def _root(table: Mapping[str, Any] | None) -> sections.Root | None:
    if table is None:
        return None
    known = ["from" if f.name == "source" else f.name for f in dataclasses.fields(sections.Root)]
    for key in table:
        if key not in known:
            raise SpecError(f"root.{key}: unknown key '{key}'{nearest(key, known)}")
    try:
        return convert("root", {"source" if k == "from" else k: v for k, v in table.items()}, sections.Root)
    except SpecError as error:
        raise SpecError(str(error).replace("root.source", "root.from")) from None


def _check_algorithms(tables: Mapping[str, Any]) -> None:
    """A misspelt `[algorithms.NAME]` would otherwise wait for the run that names it."""
    for name, table in tables.items():
        if name not in PRESETS:
            raise SpecError(f"algorithms.{name}: unknown algorithm '{name}'{nearest(name, PRESETS)}")
        if not isinstance(table, Mapping):
            raise SpecError(f"algorithms.{name}: expected a table, got {table!r}; write [algorithms.{name}]")
        try:
            expand({"name": name, **table})
        except SpecError as error:
            raise SpecError(str(error).replace("algorithm.", f"algorithms.{name}.", 1)) from None


def _algorithm(tables: Mapping[str, Any]) -> Algorithm:
    table = algorithm_table(tables)
    if not PARTS.keys() <= table.keys():  # with all parts spelled out the name is only a label
        own = table.get("name")
        if isinstance(own, Algorithm) or (isinstance(own, str) and ":" in own):
            return _own_algorithm(own, {k: v for k, v in table.items() if k != "name"})
    expanded = expand(table)
    parts = {
        part: build(f"algorithm.{part}", expanded[part], registry, METHODS[part]) for part, registry in PARTS.items()
    }
    return Algorithm(**parts, name=expanded["name"])


def _own_algorithm(own: Algorithm | str, settings: dict[str, Any]) -> Algorithm:
    """A user's own: an `Algorithm`, or `module:attr` of one or of a function of the settings that makes one."""
    where = "algorithm.name"
    found = import_object(where, own) if isinstance(own, str) else own
    if callable(found):
        try:
            found = found(**settings)
        except TypeError as error:
            raise SpecError(f"{where}: {own} does not take {settings!r}: {error}") from None
    elif settings:
        raise SpecError(f"{where}: {own} is an object, so it takes no settings; got {settings!r}")
    if not isinstance(found, Algorithm):
        raise SpecError(f"{where}: {own} is a {type(found).__name__}; it must be a dragfl.Algorithm or make one")
    for part, registry in PARTS.items():
        build(f"algorithm.{part}", getattr(found, part), registry, METHODS[part])
    return found


def _check_attacks(tables: Mapping[str, Any]) -> None:
    """As for algorithms: every `[attacks.NAME]` must make an attack, whichever the experiment names."""
    for name, table in tables.items():
        if name not in ATTACKS:
            raise SpecError(f"attacks.{name}: unknown attack '{name}'{nearest(name, ATTACKS)}")
        if not isinstance(table, Mapping):
            raise SpecError(f"attacks.{name}: expected a table, got {table!r}; write [attacks.{name}]")
        try:
            _check_attack_keys({"name": name, **table}, frozenset())
            build("attack", {"name": name, **table}, ATTACKS, ())
        except SpecError as error:
            raise SpecError(str(error).replace("attack.", f"attacks.{name}.", 1)) from None


def _attack(table: Mapping[str, Any] | None) -> tuple[Attack | None, sections.Attackers]:
    if table is None or table.get("name") == NO_ATTACK:
        return None, sections.Attackers(0)
    own = ATTACKER_KEYS
    attackers = convert("attack", {k: v for k, v in table.items() if k in own}, sections.Attackers)
    rest = {k: v for k, v in table.items() if k not in own}
    given = rest.get("name")
    if given is None or isinstance(given, str):
        _check_attack_keys(rest, own)
    elif rest.keys() != {"name"}:
        stray = next(iter(rest.keys() - {"name"}))
        raise SpecError(f"attack.{stray}: the attack is given as an object, so its settings are its own; remove it")
    part = rest if isinstance(given, str) or given is None else given
    return build("attack", part, ATTACKS, ("knowledge", "init", "craft")), attackers


def _check_attack_keys(table: Mapping[str, Any], own: frozenset[str]) -> None:
    """Unknown keys, told with the nearest among the attack's own and those of every attack."""
    kind = ATTACKS.get(str(table.get("name")))
    known = [*own, "name", *(f.name for f in dataclasses.fields(kind))] if kind else list(table)
    for key in table:
        if key not in known:
            raise SpecError(f"attack.{key}: unknown key '{key}'{nearest(key, known)}")


def _model(table: Mapping[str, Any]) -> Model:
    settings = dict(table)
    make = settings.pop("name", "mlp")
    double_softmax, buffers = settings.pop("double_softmax", False), settings.pop("buffers", "refuse")
    if not isinstance(double_softmax, bool):
        raise SpecError(f"model.double_softmax: expected true or false, got {double_softmax!r}")
    if buffers not in ("refuse", "average"):
        raise SpecError(f"model.buffers: {buffers!r}; give 'refuse' or 'average'")
    if isinstance(make, str):
        make = look_up("model.name", make, MODELS)
    if not callable(make):
        raise SpecError(f"model.name: {make!r} is not callable; give (shape, classes) -> nn.Module or an nn.Module")
    if make in MODELS.values():
        defaults = {
            name: p.default for name, p in inspect.signature(make).parameters.items() if p.default is not p.empty
        }
        for key, value in settings.items():
            if key not in defaults:
                raise SpecError(
                    f"model.{key}: unknown key '{key}'{nearest(key, [*defaults, 'name', 'double_softmax', 'buffers'])}"
                )
            if type(value) is not type(defaults[key]):
                raise SpecError(f"model.{key}: expected {type(defaults[key]).__name__}, got {value!r}")
        settings = defaults | settings
    return Model(make, settings, double_softmax, buffers)


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
    probe = Setting(dim=1, clients=e.clients.total, per_round=e.clients.per_round or e.clients.total, segments=(0, 1))
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

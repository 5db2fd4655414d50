"""The tables of a spec as the objects they describe: data, root, algorithm, attack and model. Needs no torch."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dragfl import data
from dragfl.algorithms import PARTS, PRESETS, chain, expand
from dragfl.attacks import ATTACKS
from dragfl.config import tables as sections
from dragfl.config.overrides import ATTACKER_KEYS, NO_ATTACK, algorithm_table
from dragfl.config.registry import build, convert, import_object, look_up
from dragfl.errors import SpecError, nearest
from dragfl.models import MODELS
from dragfl.types import Algorithm, Attack

METHODS = {
    "correction": ("fields", "sends", "init", "needs", "broadcast", "affine", "client_finish", "server_finish"),
    "aggregate": ("init", "needs", "begin", "fold", "finish"),
    "server": ("init", "update"),
}


@dataclass(frozen=True)
class ChainTable:
    """`{chain = ["nnm", "median"], f = 2}`: names, or tables of a name and settings."""

    chain: list[Any]
    f: int | None = None


@dataclass(frozen=True)
class Model:
    """`[model]`: what makes the module, and its settings."""

    make: Any  # (shape, classes, **settings) -> nn.Module, or an nn.Module
    settings: Mapping[str, Any] = field(default_factory=dict)
    double_softmax: bool = False
    buffers: Literal["refuse", "average"] = "refuse"


def make_dataset(given: Any) -> Any:
    if isinstance(given, str):
        kind, colon, _ = given.partition(":")
        if not colon and given not in data.DATASETS:
            raise SpecError(f"data.dataset: unknown dataset '{given}'{nearest(given, data.DATASETS)}")
        if kind == "object":
            raise SpecError(f"data.dataset: {given} stands for a Dataset that was given from Python; give it again")
        if colon and kind not in data.FILE_KINDS:
            import_object("data.dataset", given)
    elif not hasattr(given, "inputs"):
        raise SpecError(f"data.dataset: {type(given).__name__} is neither a name nor a dragfl Dataset")
    return given


def make_root(table: Mapping[str, Any] | None) -> sections.Root | None:
    return None if table is None else convert("root", table, sections.Root)


def check_algorithms(tables: Mapping[str, Any]) -> None:
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


def make_algorithm(tables: Mapping[str, Any]) -> Algorithm:
    table = algorithm_table(tables)
    if not PARTS.keys() <= table.keys():  # with all parts spelled out the name is only a label
        own = table.get("name")
        if isinstance(own, Algorithm) or (isinstance(own, str) and ":" in own):
            return _own_algorithm(own, {k: v for k, v in table.items() if k != "name"})
    expanded = expand(table)
    rule = expanded["aggregate"]
    if isinstance(rule, Mapping) and rule.get("name") == "chain" and "chain" in rule:
        given = convert("algorithm.aggregate", {k: v for k, v in rule.items() if k != "name"}, ChainTable)
        expanded["aggregate"] = chain(*given.chain, f=given.f)
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


def check_attacks(tables: Mapping[str, Any]) -> None:
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


def make_attack(table: Mapping[str, Any] | None) -> tuple[Attack[Any] | None, sections.Attackers]:
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


def make_model(table: Mapping[str, Any]) -> Model:
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
